"""Ids of tasks and names of output files: which file a task makes, and which block either comes from.

A name is a function of the task's id; sorted as text, names are in the order of the input.
"""

from __future__ import annotations

import re
from urllib.parse import quote

_ID = re.compile(r"(\d+)((?:\.\d+|\[\d+(?::\d+)?\])*)")
_PART = re.compile(r"\.(\d+)|\[(\d+)(?::(\d+))?\]")
_BLOCK = re.compile(r"part-z*(\d+)")


def part_name(task_id: str, extension: str) -> str:
    """The file for a task's documents.

    >>> part_name("12", ".jsonl"), part_name("12.3", ".jsonl"), part_name("12[5:9]", ".jsonl")
    ('part-000012.jsonl', 'part-000012.00003.jsonl', 'part-000012-00000005-00000009.jsonl')
    """
    match = _ID.fullmatch(task_id or "0")
    if match is None:
        return f"part-{quote(task_id, safe='')}{extension}"
    name = f"part-{_padded(match[1], 6)}"
    for child, start, stop in _PART.findall(match[2]):
        if child:
            name += f".{_padded(child, 5)}"
        else:
            name += f"-{_padded(start, 8)}-{_padded(stop or str(int(start) + 1), 8)}"
    return name + extension


def _padded(number: str, width: int) -> str:
    """With zeros in front; where it has more digits than that, with a letter for each, which sorts behind digits."""
    return "z" * (len(number) - width) + number.zfill(width)


def block_of_file(name: str) -> int | None:
    """The number of the block that a file of an output belongs to; None for a file of another kind."""
    match = _BLOCK.match(name)
    return int(match[1]) if match else None


def block_of(task_id: str) -> int:
    """The number of the block that a task with this id came from: ``12.3[4:5]`` is of block 12."""
    end = min((i for i in (task_id.find("."), task_id.find("[")) if i >= 0), default=len(task_id))
    return int(task_id[:end])
