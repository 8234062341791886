"""The parts of a stage's contract that most authors leave at their defaults: columns, types of tasks, workers."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from gristmill.stages import hints
from gristmill.stages.hints import TaskType
from gristmill.stages.resources import Resources
from gristmill.tasks import Task


class Component:
    """A part of a pipeline: a stage, a filter or a modifier. All of this has defaults that are right for most."""

    indifferent: ClassVar[tuple[str, ...]] = ()
    """Arguments that do not change results, only how they are computed. A resumed run may have others."""
    revision: ClassVar[int] = 1
    """Raised when the same arguments give other results than before. A run does not resume that of another revision."""
    loads: ClassVar[tuple[str, ...]] = ()
    """Modules that a built-in stage imports when it runs. Workers import them while the run is still being planned."""
    builtin: ClassVar[bool] = False
    """Whether the class is gristmill's own: the columns that it declares are all that it touches, and its module can be
    imported ahead of the run. Set by `gristmill.stages.registry.builtin`, or by ``class X(..., builtin=True)`` where a
    class has no name in files. Subclasses do not inherit it."""

    def __init_subclass__(cls, *, builtin: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.builtin != builtin:
            cls.builtin = builtin

    def fingerprint_files(self) -> Sequence[str | os.PathLike[str]]:
        """Files and folders that results depend on and that no argument names.

        A run that resumes compares them with those of the run before, as it does with files that arguments name. If
        one has changed, the run stops and names it.

            def fingerprint_files(self):
                return [self.folder / "weights.bin"]
        """
        return ()

    def resolved_arguments(self) -> Mapping[str, Any]:
        """The values of arguments that are None, where they follow from other arguments. Resuming compares them."""
        return {}

    def made_of(self) -> Sequence[object]:
        """The objects that it was given to do its work with, filters for example. They may be the user's."""
        return ()

    def check_needs(self) -> None:
        """Raise `PlanError` if what it needs is missing: a model, for example. Called at each planning: be quick."""

    def preload(self) -> None:
        """Import and load what all workers can share: models, tables. Called once, in the process that forks workers.

        No threads, no files kept open, no CUDA: those do not survive.
        """


In = TypeVar("In", bound=Task[Any])
Out = TypeVar("Out", bound=Task[Any])


class ColumnContract(Component):
    """The columns that a stage needs, makes and removes.

    Planning checks them: a stage never starts without a column that it needs. Readers read only the columns that are
    needed, and writers write those that were changed.
    """

    only_inputs: bool = False
    """Whether it reads no columns but those of `inputs` and `looks_at`, so that readers need not read the others.

    Of built-in stages this is known. A stage of yours gets all columns otherwise.
    """
    only_outputs: bool = False
    """Whether results hold no columns but those of `outputs`."""
    takes_paths: bool = False
    """Whether names in `inputs` may be paths into objects, such as ``meta.src.crawl``."""
    needs_all_fields: ClassVar[bool] = False
    """Require the fields of `inputs`. The run stops at planning if the first records lack one."""
    splices_lines: ClassVar[bool] = False
    """Whether it takes unchanged fields from the raw lines of documents that were read from JSONL."""

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return what it needs: (attributes of the task, columns of its data)."""
        return [], []

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return what it makes: (attributes of the task, columns of its data).

        Other columns pass through, unless ``only_outputs``. A stage that does not define this may do anything to the
        columns, and planning takes them to be unknown after it.
        """
        return [], []

    def looks_at(self) -> list[str]:
        """Columns that it uses if they exist, beside those of `inputs`. Readers read them too."""
        return []

    def removes(self) -> list[str]:
        """Columns that it removes. Writers remove them from documents, unless a later stage makes them again."""
        return []

    def columns_needed(self) -> list[str] | None:
        """The columns that a reader has to read for it; None: all."""
        if not (self.builtin or self.only_inputs) or not self.declares_inputs():
            return None
        return self.inputs()[1]

    def declares_inputs(self) -> bool:
        """Whether `inputs` was defined. A stage that does not define it may read any column."""
        return type(self).inputs is not ColumnContract.inputs

    def declares_outputs(self) -> bool:
        """Whether `outputs` was defined, if only to declare that no column is made."""
        return type(self).outputs is not ColumnContract.outputs


class TaskContract(Generic[In, Out]):
    """The tasks that a stage takes and returns."""

    fan_out: bool | None = None
    """Whether a task may become several; None: see `fans_out`."""
    split_on_failure: bool = True
    """Whether a task of several items that fails is run again in parts, to find the items at fault.

    Set it to False where the items of a task belong together: the task is then given up as a whole.
    """
    row_wise: bool = False
    """Whether a batch of documents becomes one batch, each document by itself. Large batches then come in parts."""

    process: Any
    """Defined by `ProcessingStage`."""

    def input_type(self) -> TaskType | None:
        """The tasks it takes, by ``ProcessingStage[In, Out]``; None if that does not name them."""
        return self._generic_type(0)

    def output_type(self) -> TaskType | None:
        """The tasks it returns, by ``ProcessingStage[In, Out]``; None if that does not name them."""
        return self._generic_type(1)

    def fans_out(self) -> bool:
        """Whether a task may become several: `fan_out`, or else the form and the annotation of `process`."""
        return hints.may_give_several(self.process) if self.fan_out is None else self.fan_out

    def runs_async(self) -> bool:
        """Whether `process` is asynchronous. By default that is so if it is an ``async def``.

        Override it if the stage decides when it is planned, by its resources for example. Then `process` is a plain
        method that returns a coroutine if this is True, and a result if it is not.
        """
        return hints.is_async(self.process)

    def streams_async(self) -> bool:
        """Whether `process` is an asynchronous generator, whose tasks are passed on as they are made."""
        return inspect.isasyncgenfunction(self.process)

    def _generic_type(self, index: int) -> TaskType | None:
        return hints.task_type(hints.generic_arguments(type(self), TaskContract)[index], type(self).__module__)


class WorkerSettings:
    """How the workers of a stage are run. Each of these can be set by `with_` too."""

    worker_max_lifetime_m: float | None = None
    """Replace a worker that is this many minutes old."""
    worker_restart_interval_m: float | None = None
    """Let at least this many minutes pass between two such replacements."""
    timeout_s: float | None = None
    """A task that runs longer is given up and its worker is replaced. For a generator this is the time per chunk.

    In a stage that runs asynchronously the task is cancelled and fails, and its worker stays.
    """
    max_in_flight: int = 1
    """How many tasks a worker processes at the same time, for a stage whose `process` is asynchronous."""
    max_attempts: int | None = None
    """How often a failing task is tried; None leaves it to the executor."""
    resources_without_gpu: Resources | None = None
    """The resources of a worker on a machine without GPUs, for a stage that asks for one in ``resources`` and runs
    without one as well. None: it needs a GPU."""

    def num_workers(self) -> int | None:
        """How many workers the stage has; None leaves it to the balancer.

        A class may set a number instead, ``num_workers = 4``: `worker_count` reads both.
        """
        return None
