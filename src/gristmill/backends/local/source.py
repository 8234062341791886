"""Where source tasks come from: the user's iterable."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from gristmill.backends.local.interrupts import Interrupts
from gristmill.errors import PipelineError
from gristmill.tasks import Task

_PULL_S = 0.005
_END = object()


class Source:
    """Takes tasks from the user's iterator as they are wanted, and remembers how it failed."""

    def __init__(self, tasks: Iterator[Task[Any]], total: int | None, interrupts: Interrupts) -> None:
        self.total = total
        self.error: BaseException | None = None
        self.taken = 0
        self._tasks = tasks
        self._interrupts = interrupts

    def pull(self, count: int) -> tuple[list[tuple[str, Task[Any]]], bool]:
        """Up to ``count`` tasks with their ids, fewer if they come slowly; and whether there are more.

        A Ctrl-C while the iterator has control is noted by `Interrupts` like any other.
        """
        tasks: list[tuple[str, Task[Any]]] = []
        until = time.monotonic() + _PULL_S
        try:
            self._interrupts.at_once = True
            while len(tasks) < count:
                task: Any = next(self._tasks, _END)
                if task is _END:
                    return tasks, False
                if not isinstance(task, Task):
                    raise PipelineError(f"initial task {self.taken} is a {type(task).__name__}, not a Task")
                tasks.append((str(self.taken), task))
                self.taken += 1
                if time.monotonic() > until:
                    break
        except KeyboardInterrupt:
            if not self._interrupts.count or self._interrupts.count > 1:
                raise
        except BaseException as error:  # the iterator is the user's: its error ends the run and is raised there
            self.error = error
        finally:
            self._interrupts.at_once = False
        return tasks, True
