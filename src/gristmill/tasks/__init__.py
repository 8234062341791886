"""What flows through a pipeline. Importing this loads neither pyarrow nor pandas."""

from gristmill.tasks.document import DocumentBatch
from gristmill.tasks.empty import EmptyTask
from gristmill.tasks.file_group import FileGroupTask
from gristmill.tasks.task import Task

__all__ = ["DocumentBatch", "EmptyTask", "FileGroupTask", "Task"]
