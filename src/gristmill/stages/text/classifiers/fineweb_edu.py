"""How educational documents are, by the classifier of FineWeb-Edu and two of NVIDIA that score as it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gristmill.errors import ModelError
from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.engine import BatchSize
from gristmill.models.loading import ModelSpec
from gristmill.stages.registry import builtin, builtin_internal
from gristmill.stages.text.classifiers.base import TextClassifier, precision
from gristmill.stages.text.models.model import DEFAULT_BATCH, ModelStage
from gristmill.stages.text.models.tokenizer import TOKENS

if TYPE_CHECKING:
    import pyarrow as pa

LOWEST, HIGHEST = 0.0, 5.0
HIGH_FROM = 2.5
"""The score from which a document has a high quality."""
LABELS = ("low_quality", "high_quality")
LONGEST = 512


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class EducationModelStage(ModelStage):
    """The model of these classifiers: one number for each document."""

    indifferent = ("cache_dir", "hf_token", "model_inference_batch_size")

    model_identifier: str
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    label_field: str = "label"
    float_score_field: str = "float_score"
    int_score_field: str = "int_score"
    autocast: bool = True
    model_inference_batch_size: BatchSize = DEFAULT_BATCH
    token_field: str = TOKENS
    keep_tokens: bool = False

    def __post_init__(self) -> None:
        checkpoint = Checkpoint(self.model_identifier, self.cache_dir, self.hf_token)
        spec = ModelSpec(checkpoint, precision=precision(self.autocast))
        super().__init__(spec, self.model_inference_batch_size, self.token_field, self.keep_tokens)

    def check_needs(self) -> None:
        super().check_needs()
        labels = self.spec.checkpoint.labels
        if len(labels) != 1:
            raise ModelError(
                f"{self.spec.checkpoint.title} has {len(labels) or 'no'} labels, where one number is expected.\n"
                "    for a checkpoint with labels use SequenceClassifier."
            )

    def result_columns(self) -> list[str]:
        return [self.float_score_field, self.int_score_field, self.label_field]

    def results(self, rows: Array) -> Mapping[str, pa.Array]:
        from gristmill.tasks.arrow import int_array, number_array, string_array

        scores = rows[:, 0].clip(LOWEST, HIGHEST)
        return {
            self.float_score_field: number_array(scores),
            self.int_score_field: int_array(np.rint(scores)),
            self.label_field: string_array([LABELS[int(score >= HIGH_FROM)] for score in scores]),
        }


@dataclass(eq=False, repr=False, kw_only=True)
class EducationClassifier(TextClassifier):
    """A score from 0 to 5, as a number and rounded, and a label: high_quality from 2.5 on, else low_quality."""

    repository: ClassVar[str]

    model: str | None = None
    label_field: str
    float_score_field: str
    int_score_field: str

    @property
    def model_name(self) -> str:
        return self.repository if self.model is None else str(self.model)

    @property
    def longest(self) -> int | None:
        return LONGEST

    @property
    def label_column(self) -> str:
        return self.label_field

    @property
    def score_column(self) -> str | None:
        return self.float_score_field

    def model_stage(self, **common: Any) -> ModelStage:
        return EducationModelStage(
            **common,
            label_field=self.label_field,
            float_score_field=self.float_score_field,
            int_score_field=self.int_score_field,
        )


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class FineWebEduClassifier(EducationClassifier):
    """Scores how educational English documents are, from 0 to 5, by HuggingFaceFW/fineweb-edu-classifier.

        FineWebEduClassifier(filter_by=["high_quality"])

    Columns: the score as a number and rounded to an integer, and a label, which is high_quality for scores of at least
    2.5 and low_quality for others. See `TextClassifier` for the other arguments.
    """

    repository = "HuggingFaceFW/fineweb-edu-classifier"

    label_field: str = "fineweb-edu-score-label"
    float_score_field: str = "fineweb-edu-score-float"
    int_score_field: str = "fineweb-edu-score-int"


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class FineWebMixtralEduClassifier(EducationClassifier):
    """The same as `FineWebEduClassifier`, by nvidia/nemocurator-fineweb-mixtral-edu-classifier."""

    repository = "nvidia/nemocurator-fineweb-mixtral-edu-classifier"

    label_field: str = "fineweb-mixtral-edu-score-label"
    float_score_field: str = "fineweb-mixtral-edu-score-float"
    int_score_field: str = "fineweb-mixtral-edu-score-int"
    model_inference_batch_size: BatchSize = 1024


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class FineWebNemotronEduClassifier(EducationClassifier):
    """The same as `FineWebEduClassifier`, by nvidia/nemocurator-fineweb-nemotron-4-edu-classifier."""

    repository = "nvidia/nemocurator-fineweb-nemotron-4-edu-classifier"

    label_field: str = "fineweb-nemotron-edu-score-label"
    float_score_field: str = "fineweb-nemotron-edu-score-float"
    int_score_field: str = "fineweb-nemotron-edu-score-int"
    model_inference_batch_size: BatchSize = 1024
