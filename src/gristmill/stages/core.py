"""What a stage is: the contract between those who write stages and the engine."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from gristmill.stages import hints
from gristmill.stages.data_files import DataFiles
from gristmill.stages.hints import TaskType
from gristmill.stages.resources import Resources
from gristmill.tasks import Task

In = TypeVar("In", bound=Task[Any])
Out = TypeVar("Out", bound=Task[Any])

Result = Task[Any] | list[Any] | Iterable[Any] | None
"""What `process` may return: a task, several (a list, or an iterator that is consumed as it goes), or nothing."""

_ROOMS = (
    "text.",
    "decontamination.",
    *(f"deduplication.{x}" for x in ("exact.", "fuzzy.", "remove", "identified")),
    "spool",
)
OWN = tuple(f"gristmill.stages.{room}" for room in _ROOMS)
"""Where the modules of gristmill's own stages are."""
UNCHANGED: Any = type("Unchanged", (), {"__repr__": lambda self: "unchanged"})()
"""The default of settings in `with_` for which None is a value."""
MAY_BE_NONE = ("num_workers", "worker_max_lifetime_m", "worker_restart_interval_m", "timeout_s", "max_attempts")
MAX_DEPTH = 50
"""Composites nested deeper than this are taken for one that decomposes into itself."""


@dataclass(frozen=True)
class NodeInfo:
    """The node that a worker runs on."""

    node_id: str


@dataclass(frozen=True)
class WorkerMetadata:
    """The worker that hosts a stage, and what it was given."""

    worker_id: str
    node_id: str = ""
    cpus: float = 1.0
    gpus: tuple[int, ...] = ()
    """Indices of the GPUs on the node."""
    gpu_share: float = 0.0
    """The part of the GPU that is this worker's, when it shares one."""


class ProcessingStage(DataFiles, ABC, Generic[In, Out]):
    """One thing that is done to tasks: define `process`, and what else differs from the defaults.

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
    """

    name: str = ""
    """The class's name unless a class says otherwise."""
    resources: Resources = Resources()
    batch_size: int = 1
    """How many tasks `process_batch` gets at most."""
    worker_max_lifetime_m: float | None = None
    """Replace a worker that is this many minutes old."""
    worker_restart_interval_m: float | None = None
    """Let at least this many minutes pass between two such replacements."""
    timeout_s: float | None = None
    """A task that runs longer is given up and its worker is replaced. Of a generator each chunk may take so long."""
    max_attempts: int | None = None
    """How often a failing task is tried; None leaves it to the executor."""
    fan_out: bool | None = None
    """Whether a task may become several; None: see `fans_out`."""
    split_on_failure: bool = True
    """Whether a task of several items that fails is run again in parts, to find the items at fault.

    Set it to False where the items of a task belong together: the task is then given up as a whole.
    """
    row_wise: bool = False
    """Whether a batch of documents becomes one batch, each document by itself: a large one is then given in parts."""
    needs_all_fields: ClassVar[bool] = False
    """Whether it is of no use without the fields of `inputs`: a run whose first records lack one does not start."""
    takes_paths: bool = False
    """Whether names in `inputs` may be paths into objects, as ``meta.src.crawl``."""
    only_inputs: bool = False
    """Whether it wants no columns but those of `inputs` and `looks_at`: readers then need not read the others.

    A stage of yours gets all columns otherwise.
    """
    only_outputs: bool = False
    """Whether results hold no columns but those of `outputs`."""
    indifferent: ClassVar[tuple[str, ...]] = ()
    """Arguments that change how it works and not what comes of it: a run that goes on may have others."""
    revision: ClassVar[int] = 1
    """Raised when the same arguments give other results than before. A run does not resume that of another revision."""
    loads: ClassVar[tuple[str, ...]] = ()
    """Modules that it imports when it runs: workers have them imported for them while a run is still planned."""

    _named_by_class: ClassVar[bool] = True
    _settings: Mapping[str, Any] = {}
    """What `with_` has changed, for those who write a pipeline down."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            cls._named_by_class = False
        elif cls._named_by_class:
            cls.name = cls.__name__

    def inputs(self) -> tuple[list[str], list[str]]:
        """What is needed: (attributes of the task, columns of its data)."""
        return [], []

    def outputs(self) -> tuple[list[str], list[str]]:
        """What is made: (attributes of the task, columns of its data).

        Other columns pass through, unless ``only_outputs``. A stage that does not define this may do anything to the
        columns, and planning takes them to be unknown behind it.
        """
        return [], []

    def looks_at(self) -> list[str]:
        """Columns that are of interest if they are there, beside those of `inputs`: a reader takes them along."""
        return []

    def removes(self) -> list[str]:
        """Columns that it takes away: writers take them out of the documents, unless a later stage makes them anew."""
        return []

    def declares_outputs(self) -> bool:
        """Whether `outputs` was defined, be it to say that no column is made."""
        return type(self).outputs is not ProcessingStage.outputs

    def declares_inputs(self) -> bool:
        """Whether `inputs` was defined; a stage that does not may read any column."""
        return type(self).inputs is not ProcessingStage.inputs

    @abstractmethod
    def process(self, task: In) -> Result:
        """Turn a task into a task, several tasks (a list or a generator), or None to drop it.

        A generator's tasks leave as they are made, so a huge output never sits in memory whole. It must give the same
        tasks in the same order each time: when it is tried again, those that have left already are skipped.
        """

    def process_batch(self, tasks: list[In]) -> list[Result]:
        """One result per task, in order, each as `process` would return it.

        Override it where many tasks are cheaper together. Which tasks come together must not affect results.
        """
        return [self.process(task) for task in tasks]

    # Called by what the signatures of the overrides ask for: both arguments may be left out.
    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Once on each node, before any `setup` there: fetch a model's weights, say."""

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Once in each worker that hosts the stage, before its first task: load a model, say."""

    def teardown(self) -> None:
        """Once for each `setup`, whenever the process still lives: at the end, on errors, recycling and Ctrl-C."""

    def preload(self) -> None:
        """Once, in the process that workers are made from: import and load what they can share.

        No threads, no files kept open, no CUDA: those do not survive.
        """

    def source(self) -> Sequence[Task[Any]] | None:
        """The initial tasks of a pipeline that begins with this stage and is given none: a reader's blocks.

        Called before anything starts. What is wrong with the input is a `PlanError` here.
        """
        return None

    def changed_inputs(self) -> list[str]:
        """Describe the input files that are not what they were when `source` listed them, one line each.

        Called at the end of a run.
        """
        return []

    def block_sizes(self, blocks: Sequence[Task[Any]]) -> Sequence[int]:
        """The bytes of each of the blocks that `source` gave, as they lie in files; empty if they cannot be told."""
        return ()

    def tell_reading_to(self, note: Callable[[int], None]) -> None:
        """Take a function that `process` of a reader calls with the number of documents that it has read so far.

        It counts them since the last batch that it gave. This is for views, while a large block is being read.
        """

    def linked(self, before: Sequence[ProcessingStage[Any, Any]], after: Sequence[ProcessingStage[Any, Any]]) -> Self:
        """This stage, or a changed copy that makes use of knowing the others in its pipeline."""
        return self

    def made_of(self) -> Sequence[object]:
        """What it was given to do its work with and may be the user's: filters, say."""
        return ()

    def is_own(self) -> bool:
        """Whether all of its code is gristmill's: it then says of every document what becomes of it, and does not
        fail on one."""
        return all(type(x).__module__.startswith(OWN) for x in (self, *self.made_of()))

    def is_custom(self) -> bool:
        """Whether its class is the user's: it may do anything to the columns of a batch, whatever it declares."""
        return not type(self).__module__.startswith("gristmill.")

    def num_workers(self) -> int | None:
        """How many workers the stage has; None leaves it to the balancer.

        A class may set a number instead, ``num_workers = 4``: `worker_count` reads both.
        """
        return None

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
    ) -> Self:
        """Return a changed copy. Settings that are not given stay.

        None resets a setting to "not set": ``with_(num_workers=None)`` leaves the number of workers to the balancer.
        A stage always has a name, resources and a batch size, so None keeps those. The copy is shallow: other
        attributes are shared with it.
        """
        given = _given(locals())
        clone = copy.copy(self)
        for field, value in given.items():
            _set(clone, field, _Fixed(value) if field == "num_workers" else value)
        _set(clone, "_settings", {**self._settings, **given})
        check_settings(clone)
        return clone

    def input_type(self) -> TaskType | None:
        """The tasks it takes, by ``ProcessingStage[In, Out]``; None when that does not say."""
        return self._generic_type(0)

    def output_type(self) -> TaskType | None:
        """The tasks it gives, by ``ProcessingStage[In, Out]``; None when that does not say."""
        return self._generic_type(1)

    def fans_out(self) -> bool:
        """Whether a task may become several: `fan_out`, or else what `process` is and says it returns."""
        return hints.may_give_several(self.process) if self.fan_out is None else self.fan_out

    def _generic_type(self, index: int) -> TaskType | None:
        arguments = hints.generic_arguments(type(self), ProcessingStage)
        return hints.task_type(arguments[index], type(self).__module__) if arguments else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class CompositeStage(ProcessingStage[In, Out]):
    """A stage for the user that is several for the engine: define `decompose`."""

    _changes: tuple[tuple[str | None, dict[str, Any]], ...] = ()
    """(name of a stage or None for all, its changes), in the order in which they were asked for."""

    @abstractmethod
    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        """The stages that do the work, in order; composites among them are decomposed in turn."""

    def process(self, task: In) -> Result:
        raise TypeError(f"{self.name!r} is a composite: the stages it decomposes into process tasks, not itself.")

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
    ) -> Self:
        """A changed copy. ``name`` is the composite's; all else is for the stages that it decomposes into.

        Keywords are for all of them, except that resources with a GPU are only for those that need one, if any does.
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
            rest = {k: v for k, v in changes.items() if k != "resources"}
            return [leaf.with_(**(rest if picky and not leaf.resources.requires_gpu else changes)) for leaf in leaves]
        names = [leaf.name for leaf in leaves]
        if name not in names:
            raise ValueError(f"composite {self.name!r} has no stage {name!r}; it has: {', '.join(names)}.")
        return [leaf.with_(**changes) if leaf.name == name else leaf for leaf in leaves]


class _Fixed:
    """A `num_workers` that `with_` put in place of the method; a lambda could not be pickled."""

    def __init__(self, count: int | None) -> None:
        self.count = count

    def __call__(self) -> int | None:
        return self.count


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
        object.__setattr__(stage, field, value)  # frozen dataclasses too: the copy is not yet anyone's
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
    counts = {"batch_size": stage.batch_size, "max_attempts": stage.max_attempts, "num_workers": workers}
    for field, count in counts.items():
        if count is None and field != "batch_size":
            continue
        if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
            yield f"{field} must be a whole number of at least 1, not {count!r}"
    for field in ("worker_max_lifetime_m", "worker_restart_interval_m", "timeout_s"):
        span = getattr(stage, field)
        if span is None:
            continue
        if isinstance(span, bool) or not isinstance(span, Real) or not 0 < float(span) < math.inf:
            yield f"{field} must be a number above 0, not {span!r}"
