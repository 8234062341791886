"""Where source tasks come from: the user's iterable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from gristmill.backends.local.interrupts import Interrupts
from gristmill.errors import PipelineError
from gristmill.tasks import Task

_PULL_S = 0.005
_END = object()
T = TypeVar("T")


class Source:
    """Takes tasks from the user's iterator as they are wanted, and remembers how it failed."""

    def __init__(self, tasks: Iterator[Task[Any]], total: int | None, interrupts: Interrupts) -> None:
        self.total = total
        self.error: BaseException | None = None
        self.taken = 0
        self._tasks = tasks
        self._interrupts = interrupts

    def pull(self, count: int, put: Callable[[str, Task[Any]], T]) -> tuple[list[T], bool]:
        """Put up to ``count`` tasks one by one, fewer if they come slowly; what came of it, and whether more may come.

        A Ctrl-C while the iterator has control is noted by `Interrupts` like any other.
        """
        done: list[T] = []
        until = time.monotonic() + _PULL_S
        try:
            while len(done) < count and time.monotonic() <= until:
                self._interrupts.at_once = True
                task: Any = next(self._tasks, _END)
                self._interrupts.at_once = False
                if task is _END:
                    return done, False
                if not isinstance(task, Task):
                    raise PipelineError(f"initial task {self.taken} is a {type(task).__name__}, not a Task")
                done.append(put(str(self.taken), task))
                self.taken += 1
        except KeyboardInterrupt:
            if self._interrupts.count != 1:
                raise
        except BaseException as error:  # the iterator is the user's: its error ends the run and is raised there
            self.error = error
        finally:
            self._interrupts.at_once = False
        return done, True
