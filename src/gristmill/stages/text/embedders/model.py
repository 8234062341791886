"""Token ids to embeddings, by a model on a GPU or on CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.chunks import chunks_of
from gristmill.models.engine import BatchSize, TaskInference
from gristmill.models.loading import ModelSpec, Precision
from gristmill.models.pooling import Mode
from gristmill.models.sentence import SentenceEmbedding
from gristmill.models.tokens import TokenLists
from gristmill.stages.registry import builtin_internal
from gristmill.stages.text.embedders.tokenizer import AVERAGE, TRUNCATE
from gristmill.stages.text.filters.columns import column_of, set_column
from gristmill.stages.text.models.model import ModelStage
from gristmill.stages.text.models.tokenizer import TOKENS
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

POOLINGS: dict[str, Mode] = {"mean_pooling": "mean", "cls": "cls", "last_token": "lasttoken"}
BATCH = 1024


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class EmbeddingModelStage(ModelStage):
    """The model of an `EmbeddingCreatorStage`, which explains the arguments."""

    indifferent = ("cache_dir", "hf_token", "model_inference_batch_size")

    model_identifier: str
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    text_field: str = "text"
    embedding_field: str = "embeddings"
    embedding_pooling: str | None = None
    use_sentence_transformer: bool = True
    max_seq_length: int | None = None
    long_documents: str = TRUNCATE
    dtype: str = "float32"
    autocast: bool = True
    model_inference_batch_size: BatchSize = BATCH
    token_field: str = TOKENS
    keep_tokens: bool = False

    def __post_init__(self) -> None:
        checkpoint = Checkpoint(self.model_identifier, self.cache_dir, self.hf_token)
        mode = None if self.embedding_pooling is None else POOLINGS[self.embedding_pooling]
        self.head = SentenceEmbedding(mode, self.use_sentence_transformer)
        precision: Precision = "auto" if self.autocast else "float32"
        spec = ModelSpec(checkpoint, self.head, precision=precision)
        super().__init__(spec, self.model_inference_batch_size, self.token_field, self.keep_tokens)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.token_field, self.text_field]

    async def computed(self, task: DocumentBatch, inference: TaskInference) -> DocumentBatch:
        missing = column_of(task, self.text_field).is_null().to_numpy()
        done = await super().computed(task, inference)
        if missing.any():
            set_column(done, self.embedding_field, _without(done.data.column(self.embedding_field), missing))
        return done

    def result_columns(self) -> list[str]:
        return [self.embedding_field]

    def results(self, rows: Array) -> Mapping[str, pa.Array]:
        return {self.embedding_field: embedding_column(rows, self.dtype)}

    async def compute(self, inference: TaskInference, tokens: TokenLists) -> Mapping[str, pa.Array]:
        checkpoint = self.spec.checkpoint
        config = self.head.config(checkpoint)
        limit = config.limit(checkpoint, self.max_seq_length)
        if self.long_documents != AVERAGE or limit is None:
            return await super().compute(inference, tokens)
        chunks, texts = chunks_of(tokens, limit)
        rows = averages(await inference.run(chunks), chunks.lengths, texts, len(tokens))
        return self.results(unit_length(rows) if config.normalizes else rows)


def _without(column: Any, missing: Array) -> pa.Array:
    """Return a column with nulls where ``missing``."""
    from gristmill.tasks.arrow import number_array, one_array

    return one_array(column).take(number_array(np.arange(len(missing)), ~missing))


def averages(rows: Array, weights: Array, groups: Array, count: int) -> Array:
    """Return the weighted mean of the rows of each group. Groups are numbered in order, and none is empty."""
    if not count:
        return rows
    firsts = np.searchsorted(groups, np.arange(count))
    sums = np.add.reduceat(rows.astype(np.float64) * weights[:, None], firsts, axis=0)
    means: Array = (sums / np.add.reduceat(weights, firsts)[:, None]).astype(np.float32)
    several = np.diff(np.append(firsts, len(rows))) > 1
    return np.where(several[:, None], means, rows[firsts])


def unit_length(rows: Array) -> Array:
    """Return rows scaled to length one; zeros stay."""
    scaled: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return scaled


def embedding_column(rows: Array, dtype: str) -> pa.Array:
    """Return rows of numbers as an Arrow column of lists of a fixed size."""
    import pyarrow as pa

    flat = np.ascontiguousarray(rows.reshape(-1), dtype=dtype)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), rows.shape[1])
