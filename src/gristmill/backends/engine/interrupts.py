"""Ctrl-C and SIGTERM while a run lasts."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """Counts Ctrl-C in place of raising `KeyboardInterrupt`, so that a run can end in order.

    The second one raises all the same, but none does once ``closing`` is set. SIGTERM, with which batch systems end a
    job, counts likewise; the caller ends the process by it once the run has ended.
    In threads other than the main one nothing is changed, nor is the handler of a signal that is ignored or has one.
    """

    def __init__(self) -> None:
        self.count = 0
        self.closing = False
        self.terminated = False
        self._term_before: Any = None
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is not None and before is not signal.SIG_IGN:
                self._before = before
                signal.signal(signal.SIGINT, self._caught)
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                self._term_before = signal.signal(signal.SIGTERM, self._told_to_end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._term_before is not None:
            signal.signal(signal.SIGTERM, self._term_before)

    def _caught(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self.closing and self.count > 1:
            raise KeyboardInterrupt

    def _told_to_end(self, signum: int, frame: FrameType | None) -> None:
        self.terminated = True
        self.count = max(self.count, 1)
