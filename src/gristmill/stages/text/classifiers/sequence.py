"""Any sequence-classification checkpoint as a classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.engine import BatchSize
from gristmill.models.heads import HeadSpec, SequenceClassification
from gristmill.models.loading import ModelSpec
from gristmill.stages.registry import builtin, builtin_internal
from gristmill.stages.text.classifiers.base import TextClassifier, number_lists, precision, softmax
from gristmill.stages.text.models.model import DEFAULT_BATCH, ModelStage
from gristmill.stages.text.models.tokenizer import TOKENS

if TYPE_CHECKING:
    import pyarrow as pa

LEAST_PROBABILITY = 0.5
"""Of a label, for documents that may have several."""


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class ClassifierModelStage(ModelStage):
    """The model of a `SequenceClassifier`: a label, and the probabilities of all labels."""

    indifferent = ("cache_dir", "hf_token", "model_inference_batch_size")

    model_identifier: str
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    label_field: str = "label"
    score_field: str | None = None
    autocast: bool = True
    model_inference_batch_size: BatchSize = DEFAULT_BATCH
    token_field: str = TOKENS
    keep_tokens: bool = False

    def __post_init__(self) -> None:
        checkpoint = Checkpoint(self.model_identifier, self.cache_dir, self.hf_token)
        spec = ModelSpec(checkpoint, self.head(), precision=precision(self.autocast))
        super().__init__(spec, self.model_inference_batch_size, self.token_field, self.keep_tokens)

    def head(self) -> HeadSpec:
        """The head of the checkpoint."""
        return SequenceClassification()

    def check_needs(self) -> None:
        super().check_needs()
        if self._is_regression and self.score_field is None:
            raise ModelError(
                f"{self.spec.checkpoint.title} gives one number for each text, and no labels.\n"
                "    name the column for it: score_field='score'."
            )

    def result_columns(self) -> list[str]:
        scores = [self.score_field] if self.score_field is not None else []
        return scores if scores and self._is_regression else [self.label_field, *scores]

    def results(self, rows: Array) -> Mapping[str, pa.Array]:
        from gristmill.tasks.arrow import number_array

        if self._is_regression:
            assert self.score_field is not None
            return {self.score_field: number_array(rows[:, 0])}
        several = self.spec.checkpoint.config.get("problem_type") == "multi_label_classification"
        shares = 1 / (1 + np.exp(-rows)) if several else softmax(rows)
        columns = {self.label_field: self._label_lists(shares) if several else self._labels(rows)}
        return columns | ({self.score_field: number_lists(shares)} if self.score_field is not None else {})

    @property
    def _is_regression(self) -> bool:
        return len(self.spec.checkpoint.labels) == 1

    def _labels(self, rows: Array) -> pa.Array:
        from gristmill.tasks.arrow import string_array

        names = self._names(rows.shape[1])
        return string_array([names[best] for best in rows.argmax(axis=1).tolist()])

    def _label_lists(self, shares: Array) -> pa.Array:
        import pyarrow as pa

        names = self._names(shares.shape[1])
        found = [[names[k] for k in np.flatnonzero(row >= LEAST_PROBABILITY).tolist()] for row in shares]
        return pa.array(found, pa.large_list(pa.large_string()))

    def _names(self, count: int) -> Sequence[str]:
        return self.spec.checkpoint.labels or [f"LABEL_{number}" for number in range(count)]


@builtin
@dataclass(eq=False, repr=False)
class SequenceClassifier(TextClassifier):
    """Labels documents by a sequence-classification checkpoint of Hugging Face: a folder, or a repository on the hub.

        SequenceClassifier("cardiffnlp/twitter-roberta-base-sentiment-latest", filter_by=["positive"])
        SequenceClassifier("./checkpoints/quality", label_field="quality", score_field="quality_scores")

    ``label_field`` gets the most probable label. ``score_field`` gets the probabilities of all labels, in the order of
    their numbers. If the model is trained for several labels per text, ``label_field`` gets a list of those with a
    probability of at least 0.5. A model with one output gives no labels: ``score_field`` gets its number.
    ``max_seq_length`` limits the tokens of a text; by default the model reads as many as it can. See
    `TextClassifier` for the other arguments.
    """

    model: str
    _: KW_ONLY
    label_field: str = "label"
    score_field: str | None = None
    max_seq_length: int | None = None

    @property
    def model_name(self) -> str:
        return str(self.model)

    @property
    def longest(self) -> int | None:
        return self.max_seq_length

    @property
    def label_column(self) -> str:
        return self.label_field

    def model_stage(self, **common: Any) -> ModelStage:
        return ClassifierModelStage(**common, label_field=self.label_field, score_field=self.score_field)
