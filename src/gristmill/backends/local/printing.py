"""What stages print, shown where the driver prints."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections import Counter, deque
from collections.abc import Callable
from typing import IO

_LONGEST_LINE = 1 << 16


_FAILURES_SHOWN = 5
_FAILURES_EVERY_S = 10.0


class FailureLines:
    """Shows the first few failures of each stage as they come; of the others, now and then, how many there were."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._seen: Counter[str] = Counter()
        self._untold: Counter[str] = Counter()
        self._tell_at = 0.0

    def say(self, stage: str, text: str, now: float) -> None:
        self._seen[stage] += 1
        if self._seen[stage] <= _FAILURES_SHOWN:
            self._show(text)
            return
        if not self._untold:
            self._tell_at = max(self._tell_at, now)
        self._untold[stage] += 1

    def catch_up(self, now: float) -> None:
        """Say in one line what has not been said, unless that was done a moment ago."""
        if self._untold and now >= self._tell_at:
            self._show("; ".join(f"{stage}: {n:,} more tasks failed" for stage, n in self._untold.items()))
            self._untold.clear()
            self._tell_at = now + _FAILURES_EVERY_S


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

    def finish(self) -> None:
        """Show what is left and close the stream."""
        while self.forward() and _readable(self.stream):
            pass
        if self._rest:
            self._show(self._rest.decode(errors="replace"))
        self.stream.close()

    def _show(self, text: str) -> None:
        self.last.extend(text.splitlines())
        # A driver without a console, or with a closed one, has nowhere to show it.
        with contextlib.suppress(ValueError, OSError):
            print(text, file=getattr(sys, self.name), flush=True)


def _readable(stream: IO[bytes]) -> bool:
    poll = select.poll()
    poll.register(stream.fileno(), select.POLLIN)
    return bool(poll.poll(0))
