"""The task and the complexity of prompts, by NVIDIA's classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.engine import BatchSize
from gristmill.models.loading import ModelSpec
from gristmill.models.nvidia import SeveralHeads, target_sizes
from gristmill.stages.registry import builtin, builtin_internal
from gristmill.stages.text.classifiers.base import TextClassifier, precision, softmax
from gristmill.stages.text.models.model import DEFAULT_BATCH, ModelStage
from gristmill.stages.text.models.tokenizer import TOKENS

if TYPE_CHECKING:
    import pyarrow as pa

REPOSITORY = "nvidia/prompt-task-and-complexity-classifier"
LONGEST = 512
TASK = "task_type"
SCALES = (
    "creativity_scope",
    "reasoning",
    "contextual_knowledge",
    "number_of_few_shots",
    "domain_knowledge",
    "no_label_reason",
    "constraint_ct",
)
HEADS = (TASK, *SCALES)
COMPLEXITY = "prompt_complexity_score"
SHARES = {
    "creativity_scope": 0.35,
    "reasoning": 0.25,
    "constraint_ct": 0.15,
    "domain_knowledge": 0.15,
    "contextual_knowledge": 0.05,
    "number_of_few_shots": 0.05,
}
"""The weight of each scale in the complexity."""
LEAST_SECOND = 0.1
"""The least probability of a second task."""
LEAST_SHOTS = 0.05
NO_TASK = "NA"
COLUMNS = [COMPLEXITY, "task_type_1", "task_type_2", "task_type_prob", *SCALES]


@builtin_internal
@dataclass(eq=False, repr=False, kw_only=True)
class PromptModelStage(ModelStage):
    """The model of `PromptTaskComplexityClassifier`."""

    indifferent = ("cache_dir", "hf_token", "model_inference_batch_size")

    model_identifier: str = REPOSITORY
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    autocast: bool = True
    model_inference_batch_size: BatchSize = DEFAULT_BATCH
    token_field: str = TOKENS
    keep_tokens: bool = False

    def __post_init__(self) -> None:
        checkpoint = Checkpoint(self.model_identifier, self.cache_dir, self.hf_token)
        spec = ModelSpec(checkpoint, SeveralHeads(), precision=precision(self.autocast))
        super().__init__(spec, self.model_inference_batch_size, self.token_field, self.keep_tokens)

    def check_needs(self) -> None:
        super().check_needs()
        config = self.spec.checkpoint.config
        lost = [
            name for name in ("task_type_map", "weights_map", "divisor_map") if not isinstance(config.get(name), dict)
        ]
        lost += [name for name in HEADS if name not in target_sizes(self.spec.checkpoint)]
        if lost:
            raise ModelError(f"{self.spec.checkpoint.title} lacks {lost[0]!r} in its config.json.")

    def result_columns(self) -> list[str]:
        return list(COLUMNS)

    def results(self, rows: Array) -> Mapping[str, pa.Array]:
        from gristmill.tasks.arrow import number_array, string_array

        shares = dict(self._shares(rows))
        first, second, share = self._tasks(shares[TASK])
        scales = {name: self._scale(name, shares[name]) for name in SCALES}
        parts: Any = sum(SHARES[name] * scales[name] for name in SHARES)
        columns = {
            COMPLEXITY: number_array(np.round(parts, 5)),
            "task_type_1": string_array(first),
            "task_type_2": string_array(second),
            "task_type_prob": number_array(share),
        }
        return columns | {name: number_array(scale) for name, scale in scales.items()}

    def _shares(self, rows: Array) -> list[tuple[str, Array]]:
        """The probabilities of the classes of each head. The order of heads is fixed, that of names in JSON is not."""
        sizes = target_sizes(self.spec.checkpoint)
        ends = np.cumsum([sizes[name] for name in HEADS])[:-1]
        return [(name, softmax(part)) for name, part in zip(HEADS, np.split(rows, ends, axis=1), strict=True)]

    def _tasks(self, shares: Array) -> tuple[list[str], list[str], Array]:
        """The most probable task, the second one if it is probable enough, and the probability of the first."""
        names = self.spec.checkpoint.config["task_type_map"]
        order = np.argsort(-shares, axis=1, kind="stable")
        top = np.round(np.take_along_axis(shares, order[:, :2], axis=1).astype(np.float64), 3)
        first = [names[str(number)] for number in order[:, 0].tolist()]
        second = [
            names[str(number)] if share >= LEAST_SECOND else NO_TASK
            for number, share in zip(order[:, 1].tolist(), top[:, 1].tolist(), strict=True)
        ]
        return first, second, np.ascontiguousarray(top[:, 0])

    def _scale(self, name: str, shares: Array) -> Array:
        """The mean of the weights of the classes, from 0 to 1."""
        config = self.spec.checkpoint.config
        scale = np.round(shares @ np.asarray(config["weights_map"][name], np.float64) / config["divisor_map"][name], 4)
        return np.where(scale < LEAST_SHOTS, 0.0, scale) if name == "number_of_few_shots" else scale


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class PromptTaskComplexityClassifier(TextClassifier):
    """Finds the task of English prompts among 11, and scores their complexity, by
    nvidia/prompt-task-and-complexity-classifier.

    Columns: ``task_type_1``, ``task_type_2`` (NA if its probability is below 0.1), ``task_type_prob``, seven scales
    from 0 to 1 such as ``reasoning`` and ``creativity_scope``, and ``prompt_complexity_score``, which weighs six of
    them. It gives scores, so there is no ``filter_by``: use `Filter` on a column. See `TextClassifier` for the other
    arguments.
    """

    model: str | None = None

    def __post_init__(self) -> None:
        if self.filter_by:
            raise ValueError(
                "PromptTaskComplexityClassifier: it gives scores, so filter_by does not apply. "
                "Add a stage: Filter(lambda score: score > 0.5, 'prompt_complexity_score')."
            )

    @property
    def model_name(self) -> str:
        return REPOSITORY if self.model is None else str(self.model)

    @property
    def longest(self) -> int | None:
        return LONGEST

    @property
    def label_column(self) -> str:
        return "task_type_1"

    def model_stage(self, **common: Any) -> ModelStage:
        return PromptModelStage(**common)
