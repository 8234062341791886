"""Observers of a run besides the terminal: opened before the run, closed after it with its outcome.

`MonitoringOptions` says what is switched on; only that is imported. Each thing that watches is an `Attachment`: an
observer, which executors call while the run lasts (`gristmill.metrics.observer`), with an `end`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gristmill.errors import PipelineFailed

if TYPE_CHECKING:
    from gristmill.backends.base import Executor
    from gristmill.metrics.history import History
    from gristmill.metrics.observer import Observer
    from gristmill.pipeline.pipeline import Pipeline
    from gristmill.pipeline.result import RunResult
    from gristmill.storage import Folder

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class DashboardOptions:
    """Where the live page is served, and what it shows."""

    host: str = LOOPBACK
    """Beyond loopback the page asks for a token, which is printed when the run starts."""
    port: int = 0
    """0: any free port."""
    show_text: bool = True
    """Whether the page shows texts of documents."""


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Where Prometheus can scrape the run."""

    port: int
    """0: any free port."""
    host: str = LOOPBACK
    """Beyond loopback, everybody who can reach the address can read the metrics."""
    folder: str | None = None
    """Where the file is written by which Prometheus finds the run. None: the environment variable
    GRISTMILL_METRICS_DIR, or else a folder among the user's state files."""
    linger_s: float = 5.0
    """If the metrics are being read, how long to wait at the end until the final ones were read."""


@dataclass(frozen=True, slots=True)
class MonitoringOptions:
    """The views and servers that watch a run."""

    dashboard: DashboardOptions | None = None
    metrics: MetricsOptions | None = None
    report: bool = False
    """Write a report beside the output."""

    @property
    def is_on(self) -> bool:
        return self.report or self.dashboard is not None or self.metrics is not None

    @classmethod
    def of(
        cls, dashboard: bool | DashboardOptions, metrics: int | MetricsOptions | None, report: bool
    ) -> MonitoringOptions:
        """Return the options that `Pipeline.run` was given."""
        if isinstance(dashboard, bool):
            dashboard_options = DashboardOptions() if dashboard else None
        else:
            dashboard_options = dashboard
        return cls(dashboard_options, MetricsOptions(metrics) if isinstance(metrics, int) else metrics, report)


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """Facts about a run that attachments get before it starts."""

    pipeline: Pipeline
    executor: Executor
    history: History
    """All that was observed so far, in bounded memory. The thread of the run changes it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    result: RunResult | None
    """None if an error ended the run early. A run whose tasks failed has both a result and an error."""
    error: BaseException | None


class Attachment(Protocol):
    """An observer that does something with what it sees."""

    def begin(self, plan: Any) -> None: ...

    def update(self, moment: Any) -> None: ...

    def message(self, text: str) -> None: ...

    def end(self, outcome: Outcome) -> None:
        """Called once when the run has ended, also after an error or Ctrl-C. Must not raise because of its output."""


@dataclass
class Monitor:
    """The observers of one run."""

    observer: Observer | None = None
    """The observer that executors report to; None if there is none."""
    result: RunResult | None = field(default=None, init=False)
    """Set by the pipeline when the run has ended."""


@contextmanager
def monitoring(pipeline: Pipeline, executor: Executor, watch: MonitoringOptions) -> Iterator[Monitor]:
    """Watch a run for the duration of the block."""
    if not watch.is_on:
        yield Monitor()
        return
    from gristmill.metrics.history import History
    from gristmill.metrics.observer import Observers

    history = History()
    with ExitStack() as stack:
        attached = _attachments(WatchedRun(pipeline, executor, history), watch, stack)
        monitor = Monitor(Observers((history, *attached)))
        error: BaseException | None = None
        try:
            yield monitor
        except BaseException as raised:
            error = raised
            raise
        finally:
            result = error.result if isinstance(error, PipelineFailed) else monitor.result
            for attachment in attached:
                attachment.end(Outcome(result, error))


def _attachments(run: WatchedRun, watch: MonitoringOptions, stack: ExitStack) -> Sequence[Attachment]:
    """Open what is switched on. The stack closes it after its `end`."""
    attached: list[Attachment] = []
    if watch.metrics is not None:
        from gristmill.pipeline.metrics_endpoint import MetricsAttachment

        metrics = MetricsAttachment(run, watch.metrics)
        stack.callback(metrics.close)
        attached.append(metrics)
    if watch.dashboard is not None:
        attached.append(_dashboard(run, watch.dashboard, stack))
    if watch.report:
        from gristmill.pipeline.run_report import report_of

        if (report := report_of(run)) is not None:
            attached.append(report)
    return attached


def _dashboard(run: WatchedRun, options: DashboardOptions, stack: ExitStack) -> Attachment:
    from gristmill.dashboard.attachment import open_dashboard

    output = _output_folder(run.pipeline)
    name, host, port = run.pipeline.name, options.host, options.port
    return open_dashboard(stack, run.history, name, output, host, port, options.show_text)


def _output_folder(pipeline: Pipeline) -> Folder | None:
    """Return the folder that a pipeline writes to, if it has a writer."""
    from gristmill.pipeline.planner import flatten
    from gristmill.stages.protocols import Sink

    return next((stage.folder for stage in flatten(pipeline.stages) if isinstance(stage, Sink)), None)
