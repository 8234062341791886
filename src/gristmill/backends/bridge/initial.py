"""Initial tasks for schedulers that want all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gristmill.backends.bridge.accounts import RunAccounts
from gristmill.backends.bridge.reports import PackedTask
from gristmill.backends.engine.names import LocalNames
from gristmill.backends.engine.payload import pack
from gristmill.errors import PipelineError
from gristmill.tasks import EmptyTask, Task


def pack_initial(tasks: Iterable[Task[Any]] | None, accounts: RunAccounts, local: LocalNames) -> Iterator[PackedTask]:
    """Yield the initial tasks, each entered in the accounts."""
    for number, task in enumerate([EmptyTask()] if tasks is None else tasks):
        if not isinstance(task, Task):
            raise PipelineError(f"initial task {number} is a {type(task).__name__}, not a Task")
        label = task.task_id if task.named and task.task_id else str(number)
        try:
            int(task.num_items)  # may be the user's code: an error in it is reported here, before any work
            packed = PackedTask(label, b"".join(pack(task, local)))
        except Exception as error:  # pickling runs the user's code, on whatever the task holds
            raise PipelineError(
                f"initial task {label}, a {type(task).__name__}, cannot be sent to a worker: "
                f"{type(error).__name__}: {error}"
            ) from error
        accounts.begin(label)
        yield packed
