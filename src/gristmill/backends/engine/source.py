"""Where source tasks come from: the user's iterable."""

from __future__ import annotations

import contextlib
import contextvars
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sized
from typing import Any, TypeVar

from gristmill.errors import PipelineError
from gristmill.tasks import EmptyTask, Task

_PULL_S = 0.005
"""How long tasks are gathered for one answer, and how long one answer may take to put."""
_JOIN_S = 0.2
_NOT_YET = object()
_END = object()
T = TypeVar("T")


class TaskSource:
    """Takes tasks from a list as they are wanted, and remembers how that failed.

    One order at a time: after `ask`, `answer` gives what has come once it is `due`.
    """

    def __init__(self, tasks: Iterable[Task[Any]], total: int | None) -> None:
        self.total = total
        self.error: BaseException | None = None
        self.taken = 0
        self.asked = 0
        """Tasks of the order that is not answered yet."""
        self._tasks = tasks
        self._iterator = iter(tasks) if isinstance(tasks, list | tuple) else iter(())

    def ask(self, count: int) -> None:
        self.asked = count

    def due(self) -> float:
        """When (`time.monotonic`) the order can be answered; never, as far as is known, if that is infinite."""
        return 0.0 if self.asked else math.inf

    def answer(self, put: Callable[[str, Task[Any]], T]) -> tuple[list[T], bool] | None:
        """Put up to as many tasks as were asked for; what came of it, and whether more may come. None if not due."""
        now = time.monotonic()
        if not self.asked or self.due() > now:
            return None
        done: list[T] = []
        try:
            while len(done) < self.asked and time.monotonic() <= now + _PULL_S:
                task = self._next()
                if task is _END:
                    return done, False
                if task is _NOT_YET:
                    break
                if not isinstance(task, Task):
                    raise PipelineError(f"initial task {self.taken} is a {type(task).__name__}, not a Task")
                done.append(put(task.task_id if task.named and task.task_id else str(self.taken), task))
                self.taken += 1
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the iterator is the user's: its error ends the run and is raised there
            self.error = error
        finally:
            self.asked = 0
        return done, True

    def _next(self) -> Any:
        return next(self._iterator, _END)

    def fileno(self) -> int | None:
        """A descriptor that is readable when `due` may have changed; `woken` is called then."""
        return None

    def woken(self) -> None:
        """Called when the descriptor is readable."""

    def close(self) -> None:
        """Take nothing more."""


class ThreadedSource(TaskSource):
    """Takes tasks from an iterator that may block, in a thread that never runs ahead of what was asked for.

    The thread ends with the source, or, if the iterator has control and blocks, as soon as it gives it back.
    """

    def __init__(self, tasks: Iterable[Task[Any]], total: int | None) -> None:
        super().__init__(tasks, total)
        self._changed = threading.Condition()
        self._given: deque[Any] = deque()
        self._first_at = 0.0
        self._ended = False
        self._closed = False
        self._failure: BaseException | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._work,), name="gristmill-source", daemon=True)

    def ask(self, count: int) -> None:
        with self._changed:
            self.asked = count
            self._changed.notify()
        if self._thread.ident is None:
            self._thread.start()

    def due(self) -> float:
        with self._changed:
            if not self.asked or not (self._given or self._ended):
                return math.inf
            return 0.0 if self._is_full() else self._first_at + _PULL_S

    def _is_full(self) -> bool:
        return self._ended or len(self._given) >= self.asked

    def _next(self) -> Any:
        with self._changed:
            if self._given:
                return self._given.popleft()
            if self._failure is not None:
                raise self._failure
            return _END if self._ended else _NOT_YET

    def fileno(self) -> int | None:
        return self._read

    def woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
            os.close(self._read)
            os.close(self._write)
        self._tasks = ()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)

    # In the thread ----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        failure = None
        try:
            iterator = iter(self._tasks)
            while self._is_wanted():
                task = next(iterator, _END)
                if task is _END:
                    break
                self._give(task)
        except BaseException as error:  # `answer` reports it, whatever it is
            failure = error
        with self._changed:
            self._failure = failure
            self._ended = True
            self._wake()

    def _is_wanted(self) -> bool:
        with self._changed:
            while not self._closed and len(self._given) >= self.asked:
                self._changed.wait()
            return not self._closed

    def _give(self, task: Any) -> None:
        with self._changed:
            self._given.append(task)
            if len(self._given) == 1:
                self._first_at = time.monotonic()
                self._wake()
            elif self._is_full():
                self._wake()

    def _wake(self) -> None:
        if not self._closed:
            with contextlib.suppress(BlockingIOError):  # full: the loop will wake anyway
                os.write(self._write, b"\0")


def source_of(tasks: Iterable[Task[Any]] | None) -> TaskSource:
    """Return the source for the tasks of the user; None stands for one `EmptyTask`."""
    tasks = [EmptyTask()] if tasks is None else tasks
    total = len(tasks) if isinstance(tasks, Sized) else None
    # Only a list or a tuple is sure not to block.
    return (TaskSource if isinstance(tasks, list | tuple) else ThreadedSource)(tasks, total)
