"""Initial tasks for schedulers that want all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gristmill.backends.bridge.books import Books
from gristmill.backends.bridge.reports import Made
from gristmill.backends.engine.names import LocalNames
from gristmill.backends.engine.payload import pack
from gristmill.errors import PipelineError
from gristmill.tasks import EmptyTask, Task


def packed(tasks: Iterable[Task[Any]] | None, books: Books, local: LocalNames) -> Iterator[Made]:
    """The initial tasks, each noted in the books."""
    for number, task in enumerate([EmptyTask()] if tasks is None else tasks):
        if not isinstance(task, Task):
            raise PipelineError(f"initial task {number} is a {type(task).__name__}, not a Task")
        label = task.task_id if task.named and task.task_id else str(number)
        try:
            made = Made(label, int(task.num_items), b"".join(pack(task, local)))
        except Exception as error:  # pickling runs the user's code, on whatever the task holds
            raise PipelineError(
                f"initial task {label}, a {type(task).__name__}, cannot be sent to a worker: "
                f"{type(error).__name__}: {error}"
            ) from error
        books.begin(label)
        yield made
