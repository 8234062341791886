"""The view for terminals: a table that stays in place. Only this file uses rich."""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from gristmill.metrics import format as fmt
from gristmill.metrics.format import ASCII, UNICODE, Glyphs
from gristmill.metrics.table import Line, draw
from gristmill.metrics.view import Ended, is_terminal
from gristmill.metrics.view_state import StateView, ViewState
from gristmill.secrets import without_secrets

FINAL_ROWS = 40
"""Rows of the last table: it scrolls away like any text, so it may be taller than the terminal."""


class Table:
    """The table of a state, drawn for the size that the terminal has at that moment."""

    def __init__(self, state: ViewState, glyphs: Glyphs) -> None:
        self.state = state
        self.glyphs = glyphs

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        rows = max(FINAL_ROWS, console.size.height) if self.state.ending else console.size.height
        for line in draw(self.state, options.max_width, rows, self.glyphs):
            yield from _segments(line)


def _segments(line: Line) -> Iterator[Segment]:
    for text, style in line:
        yield Segment(text, Style.parse(style) if style else None)
    yield Segment.line()


class LiveView(StateView):
    """Redraws on each `update`, in the caller's thread.

    While it is open, output to a standard stream on the same terminal appears above the table. A standard stream that
    leads elsewhere (a file, a pipe) is not changed.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._console = Console(
            file=stream, force_terminal=True, force_jupyter=False, force_interactive=True, highlight=False, markup=False
        )
        self._glyphs = UNICODE if fmt.can_show(stream, "".join(UNICODE)) else ASCII
        self._live: Live | None = None
        self._handlers: list[tuple[logging.StreamHandler[TextIO], TextIO]] = []
        self._closed = False

    def show(self, state: ViewState) -> None:
        if self._closed:
            return
        table = Table(state, self._glyphs)
        try:
            if self._live is None:
                self._open(table)
            else:
                self._live.update(table, refresh=True)
        except (OSError, ValueError):  # the terminal is gone: the run continues without a view
            self._give_back()

    def message(self, text: str) -> None:
        if self._closed:
            return
        try:
            # Colours are kept. Brackets are plain text, and escapes that would move the cursor are dropped.
            self._console.print(Text.from_ansi(without_secrets(text)), soft_wrap=True)
        except (OSError, ValueError):
            self._give_back()

    def close(self, record: Ended | None) -> None:
        if self._closed:
            return
        final = self.final_state(record)
        if self._live is not None and final is not None:
            self._live.update(Table(final, self._glyphs))
        self._give_back()

    def _open(self, table: Table) -> None:
        here = self._console.file
        self._live = Live(
            table,
            console=self._console,
            auto_refresh=False,
            redirect_stdout=_same_terminal(sys.stdout, here),
            redirect_stderr=_same_terminal(sys.stderr, here),
            vertical_overflow="crop",
        )
        atexit.register(self._give_back)
        streams = (sys.stdout, sys.stderr)
        self._live.start(refresh=True)
        self._redirect_logging(dict(zip(map(id, streams), (sys.stdout, sys.stderr), strict=True)))

    def _redirect_logging(self, now: dict[int, TextIO]) -> None:
        """Redirect the handlers that were made before the view opened: they would write across the table."""
        for handler in logging.getLogger().handlers:
            if type(handler) is logging.StreamHandler and now.get(id(handler.stream), handler.stream) != handler.stream:
                self._handlers.append((handler, handler.stream))
                handler.setStream(now[id(handler.stream)])

    def _give_back(self) -> None:
        """Put back the cursor, the standard streams and the logging handlers, if not already done."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._give_back)
        try:
            if self._live is not None:
                # An unfinished line would be lost with the proxy that holds it.
                sys.stdout.flush()
                sys.stderr.flush()
                self._live.stop()
        except (OSError, ValueError):
            pass
        finally:
            for handler, stream in self._handlers:
                handler.setStream(stream)


def _same_terminal(standard: TextIO | None, here: object) -> bool:
    return standard is not None and (standard is here or is_terminal(standard))
