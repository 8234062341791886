"""Names of output files: a function of the task's id, in the order of the input when sorted as text."""

from __future__ import annotations

import re
from urllib.parse import quote

_ID = re.compile(r"(\d+)((?:\.\d+|\[\d+(?::\d+)?\])*)")
_PART = re.compile(r"\.(\d+)|\[(\d+)(?::(\d+))?\]")


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
