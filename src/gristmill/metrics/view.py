"""The live view of a run: its interface, and the choice of the view for a terminal, notebook or log."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from gristmill.metrics.observer import Observer
    from gristmill.metrics.rates import InputProgress
    from gristmill.scheduling.snapshot import Snapshot

MODES = ("auto", "live", "lines", "notebook", "off")


class Ended(Protocol):
    """The fields that a view reads of the record of a run that has ended."""

    @property
    def wall_s(self) -> float: ...
    @property
    def failures_total(self) -> int: ...
    @property
    def interrupted(self) -> bool: ...


class View:
    """Shows a run; this base shows nothing. It never fails a run: a view that cannot write stops writing.

    The executor calls `update` a few times a second from the thread that runs the pipeline, and `close` exactly once,
    also after an error, with the record of the run or None if there is none.
    """

    def update(
        self, snapshot: Snapshot, memory_bytes: int, memory_limit: int, progress: InputProgress | None = None
    ) -> None:
        """Show this moment.

        ``memory_bytes`` is that of all processes of the run; a limit of 0 is none. ``progress`` is that of a pipeline
        which begins with a reader.
        """

    def message(self, text: str) -> None:
        """Show text that stays: a warning, or the progress of a slow start."""

    def close(self, record: Ended | None) -> None:
        """Show how the run ended and give the terminal back."""


class Off(View):
    """Shows nothing."""


class Announced(View):
    """A view whose messages an observer gets as well."""

    def __init__(self, view: View, observer: Observer) -> None:
        self._view = view
        self._observer = observer

    def update(
        self, snapshot: Snapshot, memory_bytes: int, memory_limit: int, progress: InputProgress | None = None
    ) -> None:
        self._view.update(snapshot, memory_bytes, memory_limit, progress)

    def message(self, text: str) -> None:
        self._view.message(text)
        self._observer.message(text)

    def close(self, record: Ended | None) -> None:
        self._view.close(record)


def view_for(mode: str = "auto", stream: TextIO | None = None, logging_interval: float = 60.0) -> View:
    """The view for ``mode``, on ``stream`` (standard error if None).

    ``auto`` is a table in place on a terminal or in a notebook, and elsewhere a line after 5 seconds and then every
    ``logging_interval`` seconds.

    >>> view_for("off").message("not shown")
    """
    if mode not in MODES:
        raise ValueError(f"view {mode!r} is not known; it is one of: {', '.join(MODES)}")
    target = stream if stream is not None else sys.stderr
    if mode == "auto":
        fit = is_terminal(target) and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
        mode = "notebook" if stream is None and in_notebook() else "live" if fit else "lines"
    # A program without a console has no sys.stderr.
    if mode == "off" or (target is None and mode != "notebook"):
        return Off()
    if mode == "live":
        from gristmill.metrics.live import LiveView

        return LiveView(target)
    if mode == "notebook":
        from gristmill.metrics.notebook import NotebookView

        return NotebookView()
    from gristmill.metrics.lines import LinesView

    return LinesView(target, logging_interval)


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel. Does not load IPython: in a kernel it is already there."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return False
    try:
        return ipython.get_ipython().kernel is not None
    except AttributeError:  # a shell in a terminal, or none
        return False


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def ending(record: Ended | None) -> str:
    """Return how a run ended, in a few words."""
    if record is None:
        return "stopped"
    how = "interrupted" if record.interrupted else "finished"
    failed = f", {record.failures_total:,} failed" if record.failures_total else ""
    return f"{how} in {record.wall_s:.1f} s{failed}"
