"""Calls to Ray that wait for the cluster, made in a thread, so that the driver never waits."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

_END_S = 60.0
_ATTEMPTS = 3
_PAUSE_S = 0.5

Failed = Callable[[Exception], None]


class BackgroundCalls:
    """Makes calls one after the other. A call that fails is reported: to its caller, or else with `reports`."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[str, Callable[[], Any], Failed | None] | None] = queue.SimpleQueue()
        self._reports: deque[str] = deque()
        self._thread = threading.Thread(target=self._work, name="gristmill-background_calls", daemon=True)
        self._thread.start()

    def do(self, what: str, call: Callable[[], Any], failed: Failed | None = None) -> None:
        """Have a call made, after those before it.

        If it raises, ``failed`` is called in this thread. Without ``failed``, the call is made up to three times, and
        then `reports` has a line: "Ray could not ``what``: ...".
        """
        self._calls.put((what, call, failed))

    def reports(self) -> list[str]:
        """Return a line for each call that failed since the last time."""
        return [self._reports.popleft() for _ in range(len(self._reports))]

    def _work(self) -> None:
        while (next_call := self._calls.get()) is not None:
            what, call, failed = next_call
            attempts = 1 if failed else _ATTEMPTS
            for attempt in range(1, attempts + 1):
                try:
                    call()
                    break
                except Exception as error:  # Ray raises errors of many types; every one of them is reported
                    if failed is not None:
                        failed(error)
                    elif attempt == attempts:
                        self._reports.append(f"Ray could not {what}: {in_one_line(error)}")
                    else:
                        time.sleep(_PAUSE_S)

    def close(self, wait: bool = True) -> None:
        """End the thread; with ``wait``, when all calls are made."""
        self._calls.put(None)
        if wait:
            self._thread.join(_END_S)


def in_one_line(error: BaseException | str | None) -> str:
    """Return the last line of an error's message, which in Ray's errors names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
