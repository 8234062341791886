"""What stages of videos share: where the video of a row is, and rows whose video or clip cannot be used."""

from __future__ import annotations

import copy
from abc import ABC
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Self, TypeVar

from gristmill.errors import PlanError
from gristmill.lazy import np
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Linked, Stages
from gristmill.tasks import BadRecord, DocumentBatch
from gristmill.tasks.document import ID, LOCATION
from gristmill.tasks.video import VIDEO, VideoTask
from gristmill.videos.errors import BadVideo

B = TypeVar("B", bound=DocumentBatch)


class VideoStage(ProcessingStage[VideoTask, VideoTask], Linked, ABC):
    """A stage that opens videos, or makes clips of them. It reports each row that it does not return.

    ``storage`` are the options of the storage that the reader of the pipeline was given.
    """

    accounts_for_documents = True
    storage: Mapping[str, Any] = {}

    def linked(self, before: Stages, after: Stages) -> Self:
        """Return a copy that opens files as the reader before it does."""
        from gristmill.stages.text.io.reader.base import FileReader

        reader = next((stage for stage in before if isinstance(stage, FileReader)), None)
        if reader is None or not reader.options:
            return self
        clone = copy.copy(self)
        clone.storage = reader.options
        return clone

    def check_needs(self) -> None:
        if find_spec("av") is None:
            raise PlanError(f"{self.name!r} needs PyAV to read videos: pip install 'gristmill[video]'.")

    def preload(self) -> None:
        import av  # noqa: F401  # shared by all workers


def locations(task: DocumentBatch) -> list[str]:
    """The path or URL of the video of each row, with what is needed to open it."""
    table = task.data
    shown = table.column(VIDEO).to_pylist()
    if LOCATION not in table.column_names:
        return shown
    secret = table.column(LOCATION).to_pylist()
    return [url or path for url, path in zip(secret, shown, strict=True)]


def values(task: DocumentBatch, name: str, default: Any = None) -> list[Any]:
    """The values of a column; ``default`` for each row if there is no such column."""
    table = task.data
    return table.column(name).to_pylist() if name in table.column_names else [default] * table.num_rows


def without_bad(task: B, problems: Mapping[int, BadVideo]) -> B:
    """Return the task without some rows. They are reported as records that cannot be read, with their reasons."""
    if not problems:
        return task
    stays = np.ones(task.num_items, dtype=bool)
    stays[list(problems)] = False
    idents = values(task, ID, "")
    kept = task.select(stays)
    for row, problem in sorted(problems.items()):
        kept.account.bad.append(bad_record(idents[row], problem))
    return kept


def bad_record(ident: str, problem: BadVideo) -> BadRecord:
    """A row that cannot be used, for the account. ``ident`` is its id: of a video, or of a clip."""
    file, _, position = ident.rpartition("#")
    place, _, clip = position.partition("/")
    where = int(place) if place.isdecimal() else 0
    raw = f"clip {clip}".encode() if clip else b""
    return BadRecord(file, where, problem.reason, raw, is_failure=problem.may_pass)


def each_row(task: VideoTask) -> Sequence[VideoTask]:
    """The task as tasks of a row each, without its account."""
    return [task._with_data(task.data.slice(row, 1)) for row in range(task.num_items)]
