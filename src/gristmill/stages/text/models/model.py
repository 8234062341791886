"""Token ids to columns, by a model on a GPU or on CPUs."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from gristmill.errors import ModelError
from gristmill.lazy import Array
from gristmill.models.engine import TOKEN_BUDGET, BatchSize, InferenceEngine, TaskInference
from gristmill.models.tokens import TokenLists
from gristmill.stages.inference import InferenceStage
from gristmill.stages.protocols import Tuned
from gristmill.stages.resources import Resources
from gristmill.stages.text.filters.columns import column_of, set_column
from gristmill.stages.text.models.tokenizer import TOKENS
from gristmill.tasks import DocumentBatch
from gristmill.tasks.account import FOUND

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.models.loading import ModelSpec

DEFAULT_BATCH = 256


class ModelStage(InferenceStage, Tuned, builtin=True):
    """Computes a row of numbers for each document from its tokens, and makes columns of it.

    A subclass names the columns (`result_columns`) and makes them (`results`). The column of tokens is removed, unless
    ``keep_tokens``. Documents keep their order. What is computed together depends on the documents of a task only.
    A worker has a GPU; where there is none, it runs on CPUs.
    """

    resources = Resources(cpus=1, gpus=1)
    max_in_flight = 2
    """The GPU computes one task while the next is prepared, and the results of the last are passed on."""
    indifferent: ClassVar[tuple[str, ...]] = ("model_inference_batch_size",)

    def __init__(
        self,
        spec: ModelSpec,
        model_inference_batch_size: BatchSize = DEFAULT_BATCH,
        token_field: str = TOKENS,
        keep_tokens: bool = False,
    ) -> None:
        size = model_inference_batch_size
        if isinstance(size, bool) or not (size == "auto" or (isinstance(size, int) and size >= 1)):
            raise ValueError(
                f"model_inference_batch_size must be 'auto' or a whole number of at least 1, not {size!r}."
            )
        self.spec = spec
        self.model_inference_batch_size = model_inference_batch_size
        self.token_field = token_field
        self.keep_tokens = keep_tokens
        self._engine = None
        self._known_budget: int | None = None

    @abstractmethod
    def result_columns(self) -> list[str]:
        """The columns that it makes."""

    @abstractmethod
    def results(self, rows: Array) -> Mapping[str, pa.Array]:
        """The columns, made of the numbers of each document (float32)."""

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.token_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.result_columns()

    def removes(self) -> list[str]:
        return [] if self.keep_tokens else [self.token_field]

    def check_needs(self) -> None:
        self.spec.check()

    def fetch(self) -> None:
        self.spec.fetch()

    def make_engine(self, device: str) -> InferenceEngine:
        from gristmill.models.loading import load

        return InferenceEngine.of(load(self.loaded_spec(), device), self.model_inference_batch_size, self._known_budget)

    def loaded_spec(self) -> ModelSpec:
        """Return the model to load. Its files are on this machine now, so tokens are known that planning does not."""
        return self.spec

    def with_found(self, settings: Mapping[str, int]) -> Self:
        changed = copy.copy(self)
        changed._known_budget = settings.get(TOKEN_BUDGET)
        return changed

    async def computed(self, task: DocumentBatch, inference: TaskInference) -> DocumentBatch:
        """The task with its new columns."""
        for name, column in (await self.compute(inference, self._tokens(task))).items():
            set_column(task, name, column)
        if not self.keep_tokens:
            task.data = task.data.drop_columns([self.token_field])
        task.account.notes.update(inference.notes)
        if (budget := self.engine.found_budget) is not None:
            task.account.notes[FOUND + TOKEN_BUDGET] = budget
        task.account.counters.update(inference.counters)
        return task

    @property
    def engine(self) -> InferenceEngine:
        assert isinstance(self._engine, InferenceEngine), "setup() comes first"
        return self._engine

    async def compute(self, inference: TaskInference, tokens: TokenLists) -> Mapping[str, pa.Array]:
        """The columns, from the tokens of each document. Override it where one pass of the model is not enough."""
        return self.results(await inference.run(tokens))

    def _tokens(self, task: DocumentBatch) -> TokenLists:
        column: Any = column_of(task, self.token_field)
        if column.null_count:
            raise ModelError(f"column {self.token_field!r} has missing values, but each document needs its tokens.")
        return TokenLists.from_arrow(column)
