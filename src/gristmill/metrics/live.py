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
from gristmill.metrics.progress import InputProgress
from gristmill.metrics.rates import RateWindow
from gristmill.metrics.table import ASCII, UNICODE, Frame, Glyphs, Line, draw, frame_of
from gristmill.metrics.view import Ended, ending
from gristmill.scheduling.snapshot import Snapshot
from gristmill.secrets import without_secrets

FINAL_ROWS = 40
"""The last picture scrolls away like any text, so it may be taller than the terminal."""


class Picture:
    """A frame, drawn for whatever size the terminal has when it is shown."""

    def __init__(self, frame: Frame, glyphs: Glyphs) -> None:
        self.frame = frame
        self.glyphs = glyphs

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        rows = max(FINAL_ROWS, console.size.height) if self.frame.ending else console.size.height
        for line in draw(self.frame, options.max_width, rows, self.glyphs):
            yield from _segments(line)


def _segments(line: Line) -> Iterator[Segment]:
    for text, style in line:
        yield Segment(text, Style.parse(style) if style else None)
    yield Segment.line()


class LiveView:
    """Redraws on each `update`, in the caller's thread.

    While it is open, what is printed to a standard stream on the same terminal appears above the table;
    a standard stream that leads elsewhere (a file, a pipe) is left alone.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(
            file=stream, force_terminal=True, force_jupyter=False, force_interactive=True, highlight=False, markup=False
        )
        self._glyphs = UNICODE if fmt.can_show(stream, "".join(UNICODE)) else ASCII
        self._window = RateWindow()
        self._live: Live | None = None
        self._frame: Frame | None = None
        self._handlers: list[tuple[logging.StreamHandler[TextIO], TextIO]] = []
        self._closed = False

    def update(
        self, snapshot: Snapshot, memory_bytes: int, memory_limit: int, progress: InputProgress | None = None
    ) -> None:
        if self._closed:
            return
        self._frame = frame_of(self._window, snapshot, memory_bytes, memory_limit, progress)
        picture = Picture(self._frame, self._glyphs)
        try:
            if self._live is None:
                self._open(picture)
            else:
                self._live.update(picture, refresh=True)
        except (OSError, ValueError):  # the terminal is gone: the run goes on unseen
            self._give_back()

    def message(self, text: str) -> None:
        if self._closed:
            return
        try:
            # Colours in it are kept; brackets mean nothing, nor do escapes that would move the cursor.
            self._console.print(Text.from_ansi(without_secrets(text)), soft_wrap=True)
        except (OSError, ValueError):
            self._give_back()

    def close(self, record: Ended | None) -> None:
        if self._closed:
            return
        if self._live is not None and self._frame is not None:
            final = self._frame.ended(self._window.overall(), ending(record))
            self._live.update(Picture(final, self._glyphs))
        self._give_back()

    def _open(self, picture: Picture) -> None:
        here = self._console.file
        self._live = Live(
            picture,
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
        """Handlers made before the view opened hold the plain stream and would write across the table."""
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
    if standard is None:
        return False
    if standard is here:
        return True
    try:
        return standard.isatty()
    except ValueError:  # closed
        return False
