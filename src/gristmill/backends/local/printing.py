"""The prints of stages, shown where the driver prints."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections import deque
from typing import IO

from gristmill.secrets import without_secrets

_LONGEST_LINE = 1 << 16


class Printer:
    """Passes on whole lines of one stream of the run's processes."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self.stream = stream
        self.name = name
        """``stdout`` or ``stderr``; looked up for each line, because live views and notebooks replace them."""
        self.last: deque[str] = deque(maxlen=20)
        """The lines that came last."""
        self._rest = b""
        os.set_blocking(stream.fileno(), False)

    def fileno(self) -> int:
        return self.stream.fileno()

    def forward(self) -> bool:
        """Show what has come; False when nothing more can come."""
        try:
            data = os.read(self.stream.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        lines, newline, rest = (self._rest + data).rpartition(b"\n")
        if not data or len(rest) > _LONGEST_LINE:
            lines, rest = lines + newline + rest, b""
        self._rest = rest
        if lines:
            self._show(lines.removesuffix(b"\n").decode(errors="replace"))
        return bool(data)

    def flush(self) -> None:
        """Show what is left, also if it is only part of a line."""
        while self.forward() and _readable(self.stream):
            pass
        if self._rest:
            self._show(self._rest.decode(errors="replace"))
            self._rest = b""

    def finish(self) -> None:
        """Show what is left and close the stream."""
        self.flush()
        self.stream.close()

    def _show(self, text: str) -> None:
        text = without_secrets(text)  # libraries print URLs, asyncio prints the errors of a storage
        self.last.extend(text.splitlines())
        # A driver without a console, or with a closed one, has nowhere to show it.
        with contextlib.suppress(ValueError, OSError):
            print(text, file=sys.stdout if self.name == "stdout" else sys.stderr, flush=True)


def _readable(stream: IO[bytes]) -> bool:
    poll = select.poll()
    poll.register(stream.fileno(), select.POLLIN)
    return bool(poll.poll(0))
