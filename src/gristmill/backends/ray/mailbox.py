"""Answers of Ray, brought to the driver's thread."""

from __future__ import annotations

import contextlib
import os
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
