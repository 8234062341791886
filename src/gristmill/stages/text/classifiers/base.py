"""The base of classifiers: they tokenize, compute, and drop documents by label."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.lazy import Array, np
from gristmill.models.engine import BatchSize
from gristmill.models.loading import Precision
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.text.classifiers.labels import LabelFilter
from gristmill.stages.text.models.model import ModelStage
from gristmill.stages.text.models.tokenizer import TOKENS, TokenizerStage
from gristmill.tasks import DocumentBatch

EXISTING_TOKENS = "input_ids"
"""The column of token ids that users bring along or want to keep."""


@dataclass(eq=False, repr=False, kw_only=True)
class TextClassifier(CompositeStage[DocumentBatch, DocumentBatch]):
    """A tokenizer, a model, and a filter if ``filter_by`` is given. Rows keep their order, and texts are not changed.

    - ``model``: another checkpoint of the same kind: a folder, or a repository on the Hugging Face hub.
    - ``text_field``: the column of the text. The model reads its first ``max_chars`` characters.
    - ``filter_by``: keep documents with these labels only. Others are dropped, with their label as the reason.
    - ``model_inference_batch_size``: the most documents that the model computes together. "auto" finds out during the
      run how many tokens at a time are fastest on the GPU.
    - ``autocast``: compute in 16 bits on a GPU. False computes in 32 bits, which is slower. CPUs always use 32.
    - ``keep_tokens``: keep the token ids, in the column ``input_ids``.
    - ``use_existing_tokens``: take token ids from the column ``input_ids``, and tokenize nothing.
    - ``cache_dir``, ``hf_token``: the cache of the Hugging Face hub, and an access token for gated repositories.
    """

    indifferent = ("cache_dir", "hf_token", "model_inference_batch_size")
    loads = ("tokenizers", "torch")

    cache_dir: str | None = None
    hf_token: str | bool | None = None
    text_field: str = "text"
    filter_by: Sequence[str | bool] | None = None
    max_chars: int | None = None
    model_inference_batch_size: BatchSize = 256
    autocast: bool = True
    keep_tokens: bool = False
    use_existing_tokens: bool = False

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The checkpoint."""

    @property
    def longest(self) -> int | None:
        """The most tokens of a text; None is what the model can take."""
        return None

    @abstractmethod
    def model_stage(self, **common: Any) -> ModelStage:
        """The stage that computes. ``common`` are arguments that all such stages take."""

    @property
    @abstractmethod
    def label_column(self) -> str:
        """The column of labels, by which documents are dropped."""

    @property
    def score_column(self) -> str | None:
        """A column of numbers to be kept with the reason of dropped documents."""
        return None

    @property
    def token_field(self) -> str:
        return EXISTING_TOKENS if self.keep_tokens or self.use_existing_tokens else TOKENS

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        stages: list[ProcessingStage[Any, Any]] = []
        if not self.use_existing_tokens:
            stages.append(self._named("tokenizer", self.tokenizer_stage()))
        model = self.model_stage(
            model_identifier=self.model_name,
            cache_dir=self.cache_dir,
            hf_token=self.hf_token,
            autocast=self.autocast,
            model_inference_batch_size=self.model_inference_batch_size,
            token_field=self.token_field,
            keep_tokens=self.keep_tokens,
        )
        stages.append(self._named("model", model))
        if self.filter_by is not None and len(self.filter_by):
            label_filter = LabelFilter(self.filter_by, self.label_column, self.score_column)
            stages.append(self._named("filter", label_filter))
        return stages

    def tokenizer_stage(self) -> ProcessingStage[Any, Any]:
        """The stage that tokenizes."""
        return TokenizerStage(
            self.model_name,
            cache_dir=self.cache_dir,
            hf_token=self.hf_token,
            text_field=self.text_field,
            max_chars=self.max_chars,
            max_seq_length=self.longest,
            token_field=self.token_field,
        )

    def _named(self, role: str, stage: ProcessingStage[Any, Any]) -> ProcessingStage[Any, Any]:
        stage.name = f"{self.name} {role}"
        return stage


def precision(autocast: bool) -> Precision:
    """The precision of a model on a GPU, by the option of classifiers."""
    return "auto" if autocast else "float32"


def softmax(logits: Array) -> Array:
    """The probabilities of the classes of each row."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares


def number_lists(rows: Array) -> Any:
    """Rows of numbers as an Arrow column of lists."""
    import pyarrow as pa

    from gristmill.tasks.arrow import int_array, number_array

    offsets = int_array(np.arange(len(rows) + 1) * rows.shape[1])
    return pa.LargeListArray.from_arrays(offsets, number_array(rows.reshape(-1)))
