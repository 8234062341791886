"""Calls to Ray that do not keep the driver waiting: made in a thread, answered in the driver's."""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

Handler = Callable[[Any, BaseException | None], None]


class Mailbox:
    """Answers to calls are pushed here by Ray's threads as they come; `listen` handles them in the driver's."""

    def __init__(self) -> None:
        self._news: deque[tuple[Handler, Any, BaseException | None]] = deque()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._woken = False
        self._closed = False
        self._open = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._read, selectors.EVENT_READ, self._drain)

    def when(self, ref: Any, handler: Handler) -> None:
        """Have the answer of a call handled, or the error in its place."""
        ref.future().add_done_callback(lambda future: self._arrived(handler, future))

    def _arrived(self, handler: Handler, future: Any) -> None:
        error = future.exception()
        self.post(handler, None if error is not None else future.result(), error)

    def post(self, handler: Handler, answer: Any, error: BaseException | None = None) -> None:
        """Have something handled in the driver's thread. Called from any thread."""
        self._news.append((handler, answer, error))
        with self._open:
            if not self._woken and not self._closed:
                self._woken = True
                with contextlib.suppress(BlockingIOError, OSError):
                    os.write(self._write, b"\0")

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        """Call ``ready`` when a descriptor can be read."""
        self._selector.register(fd, selectors.EVENT_READ, ready)

    def listen(self, until: float) -> None:
        """Handle what has come; if there is nothing, wait for it, at the longest until then (`time.monotonic`)."""
        wait = 0.0 if self._news else max(0.0, until - time.monotonic())
        for key, _ in self._selector.select(wait):
            key.data()
        while self._news:
            handler, answer, error = self._news.popleft()
            handler(answer, error)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass
        self._woken = False  # not earlier: a byte that is read here must not be taken for one that is yet to come

    def close(self) -> None:
        with self._open:
            self._closed = True
        self._selector.close()
        os.close(self._read)
        os.close(self._write)


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
