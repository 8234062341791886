"""What the driver and its workers say to each other. The first value of a message is its kind, a plain number."""

from __future__ import annotations

import mmap
import struct
from typing import Any

Message = tuple[Any, ...]

SLOT_BYTES = 32
"""Each worker's place in the shared page: the task that it runs, the stage, the step that it sets up, and the task
whose end it has not reported yet."""
NOTHING = -(1 << 62)
"""A slot value that names no task or step."""

_SLOT = struct.Struct("<qqqq")
_STAGE = struct.Struct("<q")


def mark(
    slots: mmap.mmap, slot: int, task: int = NOTHING, stage: int = 0, step: int = NOTHING, ended: int = NOTHING
) -> None:
    """Note what a worker does, for the driver to read if it dies."""
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


class ToWorker:
    RUN = 0
    """step, unit, [(task, label, payload | None, place, offset, length, start, stop, skip, wanted)]; the place of a
    payload that is not in the message is the backend's to know"""
    RESUME = 1
    """unit"""
    CANCEL = 2
    """unit"""
    STOP = 3
    ARENA = 4
    """arena; its descriptor travels beside the frame"""
    FORGET = 5
    """arena"""
    FREE = 6
    """[(offset, length)]: payloads in the worker's own arena that are needed no more"""


class FromWorker:
    FINISHED = 0
    """unit, outputs, busy_us, counts; an output is (parent, label, items, divisible, payload | None, offset, length)"""
    EMITTED = 1
    """as FINISHED; more is to come"""
    FAILED = 2
    """unit, stage, error, detail, busy_us, counts"""
    READY = 3
    """setup_us"""
    STEP_SET_UP = 4
    """step, setup_us"""
    SETUP_FAILED = 5
    """step, stage, error, detail"""
    BYE = 6
    """[steps torn down], [teardown errors]"""
    NODE_SET_UP = 7
    """step, error"""
    BROKEN = 8
    """error; the run ends now"""
    PROGRESS = 9
    """block, read, kept, share: of the unit that is running, since its last report; for views only"""
