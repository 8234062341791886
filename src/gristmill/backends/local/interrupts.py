"""Ctrl-C while a run lasts."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """Counts Ctrl-C in place of raising `KeyboardInterrupt`, so that a run can end in order.

    The second one raises all the same, but none does once ``closing`` is set.
    In threads other than the main one, or where Ctrl-C is ignored or somebody else's, nothing is changed.
    """

    def __init__(self) -> None:
        self.count = 0
        self.closing = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is not None and before is not signal.SIG_IGN:
                self._before = before
                signal.signal(signal.SIGINT, self._caught)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _caught(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self.closing and self.count > 1:
            raise KeyboardInterrupt
