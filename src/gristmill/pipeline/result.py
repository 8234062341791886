"""The result of a run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

from gristmill.backends.base import Failure, RunRecord, StageStats, StepStats
from gristmill.errors import LedgerError, OutputsNotKept, PipelineError
from gristmill.pipeline import report
from gristmill.pipeline.text_layout import terminal_columns
from gristmill.tasks import Task

if TYPE_CHECKING:
    from gristmill.ledger.run import RunLedger
    from gristmill.scheduling.load import Load
    from gristmill.scheduling.profile import Profile
    from gristmill.scheduling.snapshot import Decision


class RunResult:
    """The account of a run, and its final tasks if they were kept.

    It is a sequence of the final tasks in the order of their ids. If they were not kept, `OutputsNotKept` is raised.
    """

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.report: str | None = None
        """The page with the report of the run, if one was written."""

    @property
    def outputs(self) -> list[Task[Any]]:
        """The final tasks."""
        if self.record.outputs is None:
            why = self.record.outputs_dropped or "they were not asked for"
            raise OutputsNotKept(
                f"the final tasks of {self.record.name!r} were not kept: {why}.\n"
                "    run(keep_outputs=True) keeps them in memory, or end the pipeline with a writer."
            )
        return self.record.outputs

    def __iter__(self) -> Iterator[Task[Any]]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)

    def __bool__(self) -> bool:
        return True  # `len` would be 0, or raise

    @overload
    def __getitem__(self, index: int) -> Task[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task[Any]]: ...
    def __getitem__(self, index: int | slice) -> Task[Any] | list[Task[Any]]:
        return self.outputs[index]

    @property
    def stages(self) -> dict[str, StageStats]:
        """The account of each stage by name, in order."""
        return {stage.name: stage for step in self.record.steps for stage in step.stages}

    @property
    def steps(self) -> dict[str, StepStats]:
        """The statistics of each step by name, in order."""
        return {step.name: step for step in self.record.steps}

    @property
    def failures(self) -> list[Failure]:
        """The first failed tasks; ``record.failures_total`` counts all."""
        return self.record.failures

    @property
    def ledger(self) -> RunLedger | None:
        """The account of every document, by source file; None if they did not come from a reader."""
        return self.record.ledger

    @property
    def decisions(self) -> list[Decision]:
        """The decisions of the balancer, with reasons."""
        return self.record.decisions

    def profile(self) -> Profile:
        """Return the measurements of each step, for the option ``profile`` of the next run. It has ``write(path)``."""
        if self.record.profile is None:
            raise PipelineError(
                f"the executor of {self.record.name!r} measured nothing that a profile could be made of"
            )
        return self.record.profile

    def load(self) -> Load:
        """This run as a load for `gristmill.scheduling.simulator.simulation`: means over the whole run."""
        load = self.record.measured_load() if self.record.measured_load else None
        if load is None:
            raise PipelineError(
                f"the run of {self.record.name!r} cannot be simulated: not every step finished a task, "
                "so their times are not known. Run more of the input"
            )
        return load

    @property
    def ok(self) -> bool:
        """Whether the run finished and no task failed."""
        return not self.record.failures_total and not self.record.interrupted

    def check(self) -> None:
        """Raise `LedgerError` unless every task that went in is accounted for."""
        problems = list(_imbalances(self.record))
        if self.record.ledger is not None:
            problems += self.record.ledger.problems[:20]
        if problems:
            raise LedgerError(
                f"the account of {self.record.name!r} does not balance; this is a bug in the engine, please report it:"
                + "".join(f"\n    {problem}" for problem in problems)
            )

    def summary(self, columns: int | None = None) -> str:
        """Return a table of each stage: tasks in and out, and how its workers spent their time.

        It fits ``columns``. None is the width of the terminal, or COLUMNS; without either, all columns are shown.
        """
        return report.summary(self.record, terminal_columns() if columns is None else columns)

    def failure_report(self) -> str:
        """Return the first failures with their stories."""
        return report.failures(self.record)

    def __repr__(self) -> str:
        kept = "outputs not kept" if self.record.outputs is None else f"{len(self.record.outputs)} outputs"
        return f"<RunResult {self.record.name!r}: {kept}, {self.record.failures_total} failures>"


def _imbalances(record: RunRecord) -> Iterator[str]:
    stages = [stage for step in record.steps for stage in step.stages]
    for s in stages:
        ended = s.tasks_done + s.tasks_failed + s.tasks_cancelled
        if s.tasks_in != ended:
            yield (
                f"stage {s.name!r}: {s.tasks_in} tasks in, but {s.tasks_done} done + {s.tasks_failed} failed + "
                f"{s.tasks_cancelled} cancelled = {ended}"
            )
        if s.tasks_dropped > s.tasks_done:
            yield f"stage {s.name!r}: {s.tasks_dropped} tasks dropped, but only {s.tasks_done} done"
    for before, s in pairwise(stages):
        if before.tasks_out != s.tasks_in:
            yield f"stage {s.name!r}: {s.tasks_in} tasks in, but {before.tasks_out} came out of {before.name!r}"
    if record.outputs is not None and stages and len(record.outputs) != stages[-1].tasks_out:
        yield f"{len(record.outputs)} outputs kept, but {stages[-1].tasks_out} tasks came out of {stages[-1].name!r}"
