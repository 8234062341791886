"""Captions to embeddings, by the text model of CLIP or SigLIP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.vision.rows import RowModel
from gristmill.models.vision.texts import TextSpec, TextTokens
from gristmill.stages.core import NodeInfo, ProcessingStage, WorkerMetadata
from gristmill.stages.image.embedders.rows_stage import BATCH, GPUS, RowModelStage
from gristmill.stages.registry import builtin_internal
from gristmill.stages.text.embedders.model import embedding_column, unit_length
from gristmill.stages.text.filters.columns import column_of, set_column
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import CAPTION

if TYPE_CHECKING:
    import pyarrow as pa

CAPTION_TOKENS = "_gristmill_caption_tokens"
CAPTION_EMBEDDING = "_gristmill_caption_embedding"


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class CaptionTokenizerStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds a column of the tokens of each caption, as many as the text model was trained on."""

    accounts_for_documents = True
    row_wise = True
    indifferent = ("cache_dir", "hf_token")

    model: str
    caption_field: str = CAPTION
    cache_dir: str | None = None
    hf_token: str | bool | None = None

    def __post_init__(self) -> None:
        self.spec = TextSpec(Checkpoint(self.model, self.cache_dir, self.hf_token))
        self._tokens: TextTokens | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.caption_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [CAPTION_TOKENS]

    def preload(self) -> None:
        import tokenizers  # noqa: F401  # imported once for all workers

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.spec.checkpoint.fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._tokens = TextTokens(self.spec)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import pyarrow as pa

        assert self._tokens is not None, "setup() comes first"
        ids, cut = self._tokens.of(column_of(task, self.caption_field).to_pylist())
        flat = pa.py_buffer(np.ascontiguousarray(ids).reshape(-1))
        column = pa.Array.from_buffers(pa.binary(4 * ids.shape[1]), len(ids), [None, flat])
        set_column(task, CAPTION_TOKENS, column)
        task.account.counters.update(cut.counters())
        return task


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class CaptionModelStage(RowModelStage):
    """Adds an embedding of each caption; null where there is no caption."""

    what = "caption"

    model: str
    model_inference_batch_size: int = BATCH
    num_gpus_per_worker: float = GPUS
    caption_field: str = CAPTION
    autocast: bool = True
    torch_compile: bool = True
    cache_dir: str | None = None
    hf_token: str | bool | None = None

    def __post_init__(self) -> None:
        checkpoint = Checkpoint(self.model, self.cache_dir, self.hf_token)
        self.spec = TextSpec(checkpoint, "auto" if self.autocast else "float32", self.torch_compile)
        self.begin(CAPTION_TOKENS, self.model_inference_batch_size, self.num_gpus_per_worker)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.input_field, self.caption_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [CAPTION_EMBEDDING]

    def check_needs(self) -> None:
        self.spec.check()

    def fetch(self) -> None:
        self.spec.checkpoint.fetch()

    def load(self, device: str) -> RowModel:
        return self.spec.load(device)

    def item(self) -> tuple[tuple[int, ...], str]:
        return (self.spec.shape.length,), "int32"

    def results(self, rows: Array, task: DocumentBatch) -> Mapping[Any, pa.Array]:
        missing = column_of(task, self.caption_field).is_null().to_numpy()
        return {CAPTION_EMBEDDING: without(embedding_column(unit_length(rows), "float32"), missing)}


def without(column: pa.Array, missing: Array) -> pa.Array:
    """Return a column with nulls where ``missing``."""
    from gristmill.tasks.arrow import number_array

    if not missing.any():
        return column
    return column.take(number_array(np.arange(len(missing)), ~missing))
