"""The shared page in which each worker notes what it does, for the driver to read if the worker dies."""

from __future__ import annotations

import mmap
import struct

SLOT_BYTES = 32
"""Each worker's slot: the task that it runs, the stage, the step that it sets up, and the task whose end it has not
reported yet."""
NOTHING = -(1 << 62)
"""A value that names no task or step."""

_SLOT = struct.Struct("<qqqq")
_STAGE = struct.Struct("<q")


def mark(
    slots: mmap.mmap, slot: int, task: int = NOTHING, stage: int = 0, step: int = NOTHING, ended: int = NOTHING
) -> None:
    """Note what a worker does."""
    _SLOT.pack_into(slots, slot * SLOT_BYTES, task, stage, step, ended)


def mark_stage(slots: mmap.mmap, slot: int, stage: int) -> None:
    """Note that a worker has come to another stage of its step."""
    _STAGE.pack_into(slots, slot * SLOT_BYTES + _STAGE.size, stage)


def read_mark(slots: mmap.mmap, slot: int) -> tuple[int | None, int, int | None]:
    """Return the task, the stage and the step to set up that a worker noted last.

    The task is the one that it ran, or else the last one that it ended and did not report: a worker that cannot report
    any more, because a stage closed its descriptors for example, dies of that task.
    """
    task, stage, step, ended = _SLOT.unpack_from(slots, slot * SLOT_BYTES)
    if task == NOTHING:
        task = ended
    return None if task == NOTHING else task, stage, None if step == NOTHING else step
