"""What flows through a pipeline. Importing this loads neither pyarrow nor pandas."""

from gristmill.tasks.account import Account, BadRecord, Dropped, Written
from gristmill.tasks.document import DocumentBatch
from gristmill.tasks.empty import EmptyTask
from gristmill.tasks.file_block import FileBlock, FileRange, FileStamp
from gristmill.tasks.file_group import FileGroupTask
from gristmill.tasks.spool_block import SpoolBlock
from gristmill.tasks.task import Task

__all__ = [
    "Account",
    "BadRecord",
    "DocumentBatch",
    "Dropped",
    "EmptyTask",
    "FileBlock",
    "FileGroupTask",
    "FileRange",
    "FileStamp",
    "SpoolBlock",
    "Task",
    "Written",
]
