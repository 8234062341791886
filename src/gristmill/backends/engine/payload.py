"""Tasks as bytes: pickled with their buffers beside them."""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any, TypeAlias

import cloudpickle

from gristmill.backends.stage_errors import StageError, details, one_line
from gristmill.tasks import Task

if TYPE_CHECKING:
    from gristmill.backends.engine.names import LocalNames

Payload: TypeAlias = bytes | bytearray | memoryview
"""A task as bytes."""
INLINE_BYTES = 64 * 1024
"""Payloads up to this size travel inside messages."""
_ALIGN = 64
MAX_BUFFERS = 512


def pack(task: Task[Any], local: LocalNames | None = None) -> list[Any]:
    """The parts of a payload, in order.

    Classes travel by name where the reader can find them, else by value. In a worker that is settled by pickling:
    it knows no other names than the reader. The driver knows more; ``local`` are those that it has shared.
    """
    buffers: list[pickle.PickleBuffer] = []
    try:
        if local is None:
            body = pickle.dumps(task, protocol=5, buffer_callback=buffers.append)
        else:
            body = local.dumps(task, buffers)
    except (pickle.PicklingError, AttributeError, TypeError):
        buffers.clear()
        body = cloudpickle.dumps(task, protocol=5, buffer_callback=buffers.append)
    if not buffers:
        return [b"\0", body]
    views = [b.raw() for b in buffers]
    if len(views) > MAX_BUFFERS:
        return [b"\0", cloudpickle.dumps(task, protocol=5)]
    head = b"\1" + struct.pack(f"<IQ{len(views)}Q", len(views), len(body), *(v.nbytes for v in views))
    parts: list[Any] = [head, body]
    position = len(head) + len(body)
    for view in views:
        gap = -position % _ALIGN
        parts += [bytes(gap), view]
        position += gap + view.nbytes
    return parts


def size_of(parts: list[Any]) -> int:
    return sum(p.nbytes if isinstance(p, memoryview) else len(p) for p in parts)


def unpack(data: Payload) -> Any:
    """The task in a payload. It shares the memory of ``data`` if that can be written to."""
    if data[0] == 0:
        return pickle.loads(memoryview(data)[1:])
    view = memoryview(data)
    if view.readonly:
        view = memoryview(bytearray(view))
    n, body = struct.unpack_from("<IQ", view, 1)
    sizes = struct.unpack_from(f"<{n}Q", view, 13)
    position = 13 + 8 * n
    pickled = view[position : position + body]
    position += body
    buffers = []
    for size in sizes:
        position += -position % _ALIGN
        buffers.append(view[position : position + size])
        position += size
    return pickle.loads(pickled, buffers=buffers)


def load_task(label: str, payload: Payload, start: int, stop: int) -> Task[Any]:
    """The task in a payload, or a slice of its items, with its id. Raises `StageError`."""
    try:
        task: Task[Any] = unpack(payload)
        if stop:
            part = task.slice(start, stop)
            if part is None:
                raise TypeError(f"a {type(task).__name__} of {task.num_items} items could not be sliced")
            task, label = part, f"{label}[{start}:{stop}]"
    except Exception as error:  # unpickling and slicing run the user's code
        raise StageError(0, f"the task could not be loaded: {one_line(error)}", details(error)) from None
    task.task_id = label
    return task
