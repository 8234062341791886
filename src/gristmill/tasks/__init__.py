"""The tasks that flow through a pipeline. Importing this loads neither pyarrow nor pandas."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in
from gristmill.tasks.account import Account, BadRecord, Dropped, Scored, Written
from gristmill.tasks.blocks import FileBlock, FileGroupTask, FileRange, FileStamp, SpoolBlock
from gristmill.tasks.document import DocumentBatch
from gristmill.tasks.task import EmptyTask, Task

if TYPE_CHECKING:
    from gristmill.tasks.image import ImageBatch
    from gristmill.tasks.video import VideoTask

__getattr__ = names_in({"ImageBatch": "gristmill.tasks.image", "VideoTask": "gristmill.tasks.video"})

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
    "ImageBatch",
    "Scored",
    "SpoolBlock",
    "Task",
    "VideoTask",
    "Written",
]
