"""The task that starts a pipeline which has no initial tasks."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.tasks.task import Task


@dataclass
class EmptyTask(Task[None]):
    """No data: what the first stage gets when a pipeline runs without ``initial_tasks``."""

    data: None = None

    @property
    def num_items(self) -> int:
        return 0
