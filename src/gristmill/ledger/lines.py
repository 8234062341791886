"""Commits as lines of a file. Each line has a checksum; the last one has the number of commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gristmill import fast_json
from gristmill.ledger.entry import Entry
from gristmill.storage import checksum

_SUM = b',"sum":"'
_END = "commits"


class DamagedLine(ValueError):
    """A damaged file of commits; the message names the line."""


def line_of(block: int, entry: Entry) -> bytes:
    return _summed(fast_json.dumps({"block": block, **entry.plain()}))


def whole(lines: Sequence[bytes]) -> bytes:
    """Return the content of a file with these lines."""
    return b"".join([*lines, _summed(fast_json.dumps({_END: len(lines)}))])


def commits_in(data: bytes) -> Iterator[tuple[int, Entry, bytes]]:
    """Yield block, entry and line of each commit in a file. Raise `DamagedLine` if the file is damaged."""
    lines = data.splitlines(keepends=True)
    if not lines:
        raise DamagedLine("it is empty")
    for number, line in enumerate(lines, 1):
        is_last = number == len(lines)
        try:
            plain = _checked(line)
            commit = None if is_last else (int(plain["block"]), Entry.of_plain(plain), line)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise DamagedLine(f"line {number} was cut or changed") from None
        if commit is not None:
            yield commit
        elif plain != {_END: len(lines) - 1}:
            raise DamagedLine("its end is missing")


def _summed(body: bytes) -> bytes:
    return body[:-1] + _SUM + checksum(body).encode() + b'"}\n'


def _checked(line: bytes) -> dict[str, Any]:
    body, found, stored = line.rpartition(_SUM)
    if not found or not line.endswith(b'"}\n') or checksum(body + b"}") != stored[:-3].decode("ascii", "replace"):
        raise ValueError("it was cut or changed")
    plain: dict[str, Any] = fast_json.loads(body + b"}")
    return plain
