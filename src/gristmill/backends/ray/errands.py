"""Calls to Ray that wait for the cluster, made in a thread, so that the driver never waits."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

_END_S = 60.0


class Errands:
    """Makes calls one after the other. What they raise is ignored: they end things that may be gone already."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="gristmill-errands", daemon=True)
        self._thread.start()

    def do(self, call: Callable[[], Any]) -> None:
        """Have a call made, after those before it."""
        self._calls.put(call)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            with contextlib.suppress(Exception):
                call()

    def close(self, wait: bool = True) -> None:
        """End the thread; with ``wait``, when all calls are made."""
        self._calls.put(None)
        if wait:
            self._thread.join(_END_S)
