"""The memory of a local run, watched more often than the run itself does: a sample is short."""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import Self

from gristmill.backends.engine.machine import children_of
from gristmill.backends.engine.memory import proportional

_EVERY_S = 0.03
_EXACT_S = 0.2


class MemoryPeaks:
    """Watches the driver, its supervisor and the workers, in a thread, for the duration of a ``with`` block.

    The system keeps the peak of each process until it exits, so no peak is missed that lasts shorter than the time
    between two looks, unless the process exits within that time.
    """

    def __init__(self) -> None:
        self.base = 0
        """Of the driver and the supervisor, with what the workers share with them."""
        self.worker = 0
        """Of the largest worker, without what it shares with the supervisor."""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gristmill-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        exact_at = 0.0
        while not self._done.wait(_EVERY_S):
            now = time.monotonic()
            for supervisor in children_of(os.getpid()):
                inherited = _memory(supervisor).get("RssAnon", 0)
                found = {worker: _memory(worker) for worker in children_of(supervisor)}
                for one in found.values():
                    peak = one.get("VmHWM", 0) - one.get("RssFile", 0) - inherited
                    self.worker = max(self.worker, peak)
                if now >= exact_at and found:
                    exact_at = now + _EXACT_S
                    own = sum(max(0, one.get("RssAnon", 0) - inherited) for one in found.values())
                    self.base = max(self.base, proportional([os.getpid(), supervisor, *found]) - own)


def _memory(pid: int) -> dict[str, int]:
    """Return what the system shows of the memory of a process, in bytes; nothing if it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            lines = [line.partition(":") for line in file if line.startswith(("VmHWM", "RssAnon", "RssFile"))]
    except OSError:
        return {}
    return {name: int(value.split()[0]) * 1024 for name, _, value in lines}
