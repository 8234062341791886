"""The state of a run as the views show it: a snapshot with its rates, and the text that several views share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gristmill.metrics import format as fmt
from gristmill.metrics.format import UNICODE, Glyphs
from gristmill.metrics.rates import InputProgress, Rates, RateWindow
from gristmill.metrics.view import Ended, View, ending
from gristmill.scheduling.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ViewState:
    """All that a view shows at one moment."""

    snapshot: Snapshot
    rates: Rates
    memory_bytes: int
    memory_limit: int
    ending: str = ""
    """How the run ended; empty while it runs."""
    progress: InputProgress | None = None
    """None for a pipeline that does not begin with a reader."""


class StateView(View):
    """A view that shows each state as it comes, and at the end the means over the whole run."""

    def __init__(self) -> None:
        self._window = RateWindow()
        self._last: ViewState | None = None

    def update(
        self, snapshot: Snapshot, memory_bytes: int, memory_limit: int, progress: InputProgress | None = None
    ) -> None:
        rates = self._window.add(snapshot, None if progress is None else progress.fraction)
        self._last = ViewState(snapshot, rates, memory_bytes, memory_limit, progress=progress)
        self.show(self._last)

    def show(self, state: ViewState) -> None:
        raise NotImplementedError

    def final_state(self, record: Ended | None) -> ViewState | None:
        """Return the state at the end; None if there was no update."""
        if self._last is None:
            return None
        return replace(self._last, rates=self._window.overall(), ending=ending(record))


def headline(state: ViewState, glyphs: Glyphs = UNICODE) -> list[str]:
    """Return the time, the progress and the time left, in parts."""
    snapshot, progress = state.snapshot, state.rates.progress
    parts = [fmt.clock(snapshot.now_us / 1e6)]
    if state.progress is not None:
        share = f" ({fmt.percent(progress.fraction)})" if progress.fraction is not None else ""
        parts.append(f"{state.progress.blocks:,}/{state.progress.blocks_total:,} blocks{share}")
    elif progress.total is None:
        parts.append(f"{progress.done:,} tasks")
    else:
        share = f" ({fmt.percent(progress.fraction)})" if progress.fraction is not None else ""
        parts.append(f"{progress.done:,}/{'' if progress.exact else glyphs.about}{progress.total:,} tasks{share}")
    if state.progress is None and (snapshot.source_total is None or progress.total is None):
        of = f"/{snapshot.source_total:,}" if snapshot.source_total is not None else ""
        parts.append(f"{snapshot.source_taken:,}{of} taken from the source")
    if state.ending:
        parts.append(state.ending)
    elif state.rates.eta_s is not None:
        parts.append(f"{fmt.clock(state.rates.eta_s)} left")
    return parts


def documents(state: ViewState) -> list[str]:
    """Return the documents and bytes of the input so far, in parts; none if the pipeline has no reader."""
    progress = state.progress
    if progress is None:
        return []
    parts = [f"{progress.read:,} documents read", f"{progress.kept:,} kept"]
    if progress.bytes_total:
        parts.append(f"{fmt.size(progress.bytes)} of {fmt.size(progress.bytes_total)}")
    return parts


def foremost(snapshot: Snapshot, rows: int) -> list[int]:
    """Return the steps to show in ``rows`` rows, in the order of the pipeline.

    All if they fit. Otherwise one row is kept for a note, and the others show the bottleneck, then steps with work,
    then those with errors.
    """
    steps = snapshot.steps
    if len(steps) <= rows:
        return list(range(len(steps)))

    def rank(i: int) -> tuple[bool, bool, bool, bool, int]:
        s = steps[i]
        active = s.running > 0 or s.busy > 0
        return (i != snapshot.bottleneck, not active, not s.queued, not s.tasks_failed, i)

    return sorted(sorted(range(len(steps)), key=rank)[: max(1, rows - 1)])
