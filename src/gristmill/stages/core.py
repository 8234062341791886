"""The contract between the author of a stage and the engine."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self, cast

from gristmill.stages.contracts import ColumnContract, Component, In, Out, TaskContract, WorkerSettings
from gristmill.stages.resources import Resources
from gristmill.tasks import Task

Result = Task[Any] | list[Any] | Iterable[Any] | None
"""The results of `process`: a task, several (a list, or an iterator that is consumed as it goes), or nothing."""
AsyncResult = Awaitable[Result] | AsyncIterator[Task[Any]]
"""The results of an asynchronous `process`: a coroutine, or an asynchronous generator."""

UNCHANGED: Any = type("Unchanged", (), {"__repr__": lambda self: "unchanged"})()
"""The default of settings in `with_` for which None is a value."""
MAY_BE_NONE = ("num_workers", "worker_max_lifetime_m", "worker_restart_interval_m", "timeout_s", "max_attempts")
MAX_DEPTH = 50
"""A composite that is nested deeper than this is taken to decompose into itself."""


@dataclass(frozen=True)
class NodeInfo:
    """The node that a worker runs on."""

    node_id: str


@dataclass(frozen=True)
class WorkerMetadata:
    """The worker that hosts a stage, and its resources."""

    worker_id: str
    node_id: str = ""
    cpus: float = 1.0
    gpus: tuple[int, ...] = ()
    """Indices of the GPUs on the node."""
    gpu_share: float = 0.0
    """The fraction of the GPU that this worker may use, if it shares one."""


class ProcessingStage(TaskContract[In, Out], ColumnContract, WorkerSettings, ABC):
    """One operation on tasks: define `process`, and what else differs from the defaults.

        class Lower(ProcessingStage[DocumentBatch, DocumentBatch]):
            resources = Resources(cpus=2)

            def inputs(self):
                return ["data"], ["text"]

            def process(self, task):
                frame = task.to_pandas()
                task.data = frame.assign(text=frame.text.str.lower())
                return task

    A stage is pickled to its workers before `setup`; each worker has a copy. A task may be processed more than once
    (after a failure, with its input as it was), its results count once.

    Its base classes hold more settings, all with defaults: columns, types of tasks, limits of workers and
    what results depend on. See `gristmill.stages.contracts`.
    """

    name: str = ""
    """By default the class's name."""
    resources: Resources = Resources()
    batch_size: int = 1
    """How many tasks `process_batch` gets at most."""
    accounts_for_documents: ClassVar[bool] = False
    """Whether it reports every document that it does not return, and fails on none. See `accounts_for_all`."""

    _named_by_class: ClassVar[bool] = True
    _settings: Mapping[str, Any] = {}
    """The changes by `with_`, for a pipeline that is written as YAML."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            cls._named_by_class = False
        elif cls._named_by_class:
            cls.name = cls.__name__

    @abstractmethod
    def process(self, task: In) -> Result | AsyncResult:
        """Turn a task into a task, several tasks (a list or a generator), or None to drop it.

        The tasks of a generator are passed on as they are made: a large output is never in memory as a whole. It must
        yield the same tasks in the same order each time: on a retry, those that were passed on are skipped.

        It may be an ``async def``, which a worker runs for up to ``max_in_flight`` tasks at the same time, all in one
        event loop. It must not block the loop.
        """

    def process_batch(self, tasks: list[In]) -> list[Result]:
        """One result per task, in order, each as `process` would return it.

        Override it where many tasks are cheaper together. Results must not depend on which tasks come together.
        """
        results: list[Any] = [self.process(task) for task in tasks]
        return results

    # Overrides may leave out either argument.
    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Called once on each node, before any `setup` there: to fetch the weights of a model, for example."""

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Called once in each worker of the stage, before its first task: to load a model, for example."""

    def teardown(self) -> None:
        """Called once for each `setup` if the process is still running: at the end, on errors, recycling and Ctrl-C."""

    def with_(
        self,
        *,
        name: str | None = None,
        resources: Resources | None = None,
        batch_size: int | None = None,
        num_workers: int | None = UNCHANGED,
        worker_max_lifetime_m: float | None = UNCHANGED,
        worker_restart_interval_m: float | None = UNCHANGED,
        timeout_s: float | None = UNCHANGED,
        max_attempts: int | None = UNCHANGED,
        max_in_flight: int | None = None,
    ) -> Self:
        """Return a changed copy. Settings that are not given stay.

        None resets a setting to "not set": ``with_(num_workers=None)`` leaves the number of workers to the balancer.
        A stage always has a name, resources, a batch size and a number in flight, so None keeps those. The copy is
        shallow: other attributes are shared with it.
        """
        given = _given(locals())
        clone = copy.copy(self)
        for field, value in given.items():
            _set(clone, field, _Fixed(value) if field == "num_workers" else value)
        _set(clone, "_settings", {**self._settings, **given})
        check_settings(clone)
        return clone

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class CompositeStage(ProcessingStage[In, Out]):
    """A stage that decomposes into several for the engine: define `decompose`."""

    _changes: tuple[tuple[str | None, dict[str, Any]], ...] = ()
    """(name of a stage or None for all, its changes), in order."""

    @abstractmethod
    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        """The stages that do the work, in order; composites among them are decomposed in turn."""

    def process(self, task: In) -> Result:
        raise TypeError(f"{self.name!r} is a composite: the stages it decomposes into process tasks, not itself.")

    # Ten parameters: the settings of `ProcessingStage.with_`, and those of single stages.
    def with_(
        self,
        stages: Mapping[str, Mapping[str, Any]] | None = None,
        /,
        *,
        name: str | None = None,
        resources: Resources | None = None,
        batch_size: int | None = None,
        num_workers: int | None = UNCHANGED,
        worker_max_lifetime_m: float | None = UNCHANGED,
        worker_restart_interval_m: float | None = UNCHANGED,
        timeout_s: float | None = UNCHANGED,
        max_attempts: int | None = UNCHANGED,
        max_in_flight: int | None = None,
    ) -> Self:
        """A changed copy. ``name`` is the composite's; all else is for the stages that it decomposes into.

        Keywords are for all of them, except that resources with a GPU are only for those that need one, if any does,
        and ``max_in_flight`` only for those that run asynchronously, if any does.
        A mapping first addresses stages by name: ``with_({"tokenize": {"batch_size": 8}})``, those of nested
        composites too. Later changes win.
        """
        given = _given(locals())
        by_name = given.pop("stages", {})
        if not isinstance(by_name, Mapping) or not all(isinstance(changes, Mapping) for changes in by_name.values()):
            raise TypeError(f"with_() of composite {self.name!r} takes {{stage: {{setting: value}}}}, not {by_name!r}.")
        name = given.pop("name", None)
        clone = copy.copy(self)
        if name is not None:
            _set(clone, "name", name)
            _set(clone, "_settings", {"name": name})
        added: list[tuple[str | None, dict[str, Any]]] = [(None, given)] if given else []
        added += [(stage, dict(changes)) for stage, changes in by_name.items()]
        _set(clone, "_changes", (*self._changes, *added))
        check_settings(clone)
        if added:
            clone.flatten()  # wrong values and names are errors here, not in the middle of planning
        return clone

    def flatten(self, depth: int = 0) -> list[ProcessingStage[Any, Any]]:
        """The stages that do the work, nested composites decomposed, with the changes that were asked for."""
        if depth > MAX_DEPTH:
            raise ValueError(f"composite {self.name!r} decomposes into itself without end.")
        parts = self.decompose()
        if not isinstance(parts, list | tuple) or not parts:
            raise ValueError(f"decompose() of composite {self.name!r} must return a list of stages, not {parts!r}.")
        leaves: list[ProcessingStage[Any, Any]] = []
        for part in parts:
            if not isinstance(part, ProcessingStage):
                raise ValueError(f"decompose() of composite {self.name!r} returned {part!r}, which is not a stage.")
            leaves += part.flatten(depth + 1) if isinstance(part, CompositeStage) else [part]
        for name, changes in self._changes:
            leaves = self._apply(leaves, name, changes)
        return leaves

    def _apply(
        self, leaves: list[ProcessingStage[Any, Any]], name: str | None, changes: dict[str, Any]
    ) -> list[ProcessingStage[Any, Any]]:
        if name is None:
            wanted = changes.get("resources")
            picky = isinstance(wanted, Resources) and wanted.requires_gpu
            picky = picky and any(leaf.resources.requires_gpu for leaf in leaves)
            some_async = any(leaf.runs_async() for leaf in leaves)

            def of(leaf: ProcessingStage[Any, Any]) -> dict[str, Any]:
                left_out = {"resources"} if picky and not leaf.resources.requires_gpu else set()
                left_out |= {"max_in_flight"} if some_async and not leaf.runs_async() else set()
                return {k: v for k, v in changes.items() if k not in left_out}

            return [leaf.with_(**of(leaf)) for leaf in leaves]
        names = [leaf.name for leaf in leaves]
        if name not in names:
            raise ValueError(f"composite {self.name!r} has no stage {name!r}; it has: {', '.join(names)}.")
        return [leaf.with_(**changes) if leaf.name == name else leaf for leaf in leaves]


class _Fixed:
    """A `num_workers` that `with_` has set in place of the method. A lambda could not be pickled."""

    def __init__(self, count: int | None) -> None:
        self.count = count

    def __call__(self) -> int | None:
        return self.count


def accounts_for_all(stage: ProcessingStage[Any, Any]) -> bool:
    """Whether a stage, with all that it is made of, is gristmill's own and reports what happens to every document."""
    parts = (stage, *stage.made_of())
    return stage.accounts_for_documents and all(isinstance(part, Component) and part.builtin for part in parts)


def worker_count(stage: ProcessingStage[Any, Any]) -> int | None:
    """Return how many workers a stage asks for, whether ``num_workers`` is a method or a number."""
    wanted: Any = stage.num_workers
    count: int | None = wanted() if callable(wanted) else wanted
    return count


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `with_` that change something."""
    return {
        key: value
        for key, value in arguments.items()
        if key not in ("self", "__class__") and value is not UNCHANGED and (value is not None or key in MAY_BE_NONE)
    }


def _set(stage: ProcessingStage[Any, Any], field: str, value: object) -> None:
    try:
        object.__setattr__(stage, field, value)  # for frozen dataclasses too: the copy is not shared yet
    except AttributeError:
        raise TypeError(
            f"with_({field}=...) cannot change {type(stage).__name__}: "
            f"it defines {field!r} as a property without a setter. Make it an attribute."
        ) from None


def check_settings(stage: ProcessingStage[Any, Any]) -> None:
    """Raise ValueError if a setting of ``stage`` makes no sense, however it was set."""
    for problem in _problems(stage):
        raise ValueError(f"stage {stage.name!r}: {problem}.")


def _problems(stage: ProcessingStage[Any, Any]) -> Iterator[str]:
    if not isinstance(stage.name, str) or not stage.name:
        yield f"name must be a text that is not empty, not {stage.name!r}"
    if not isinstance(stage.resources, Resources):
        yield f"resources must be Resources(...), not {stage.resources!r}"
    workers = None if isinstance(stage, CompositeStage) else cast(object, worker_count(stage))
    always = {"batch_size": stage.batch_size, "max_in_flight": stage.max_in_flight}
    counts = {**always, "max_attempts": stage.max_attempts, "num_workers": workers}
    for field, count in counts.items():
        if count is None and field not in always:
            continue
        if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
            yield f"{field} must be a whole number of at least 1, not {count!r}"
    for field in ("worker_max_lifetime_m", "worker_restart_interval_m", "timeout_s"):
        span = getattr(stage, field)
        if span is None:
            continue
        if isinstance(span, bool) or not isinstance(span, Real) or not 0 < float(span) < math.inf:
            yield f"{field} must be a number above 0, not {span!r}"
