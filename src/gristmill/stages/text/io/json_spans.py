"""Where the members of a JSON object stand in its line: the exact way, for lines that the kernel is not sure of."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

from gristmill import fast_json

_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_PLAIN = re.compile(rb"[^ \t\r\n,\]}]+")
_IN_CONTAINER = re.compile(rb'["{}\[\]]')


@dataclass(frozen=True)
class Members:
    """The members of an object in the order of the line; of a key that is there twice, both."""

    spans: list[tuple[str, int, int]]
    """(key, start, stop of the value)."""
    closing: int
    """Where the brace stands that closes the object."""
    keys: list[int]
    """Where each key begins."""


def members(line: bytes) -> Members:
    """The members of a line that is known to be a valid JSON object."""
    at = _space(line, 0) + 1
    spans: list[tuple[str, int, int]] = []
    keys: list[int] = []
    while True:
        at = _space(line, at)
        if line[at] == ord("}"):
            return Members(spans, at, keys)
        if line[at] == ord(","):
            at = _space(line, at + 1)
        begin = at
        stop = _string_end(line, begin)
        key: str = fast_json.loads(line[begin:stop])
        start = _space(line, _space(line, stop) + 1)
        at = _value_end(line, start)
        spans.append((key, start, at))
        keys.append(begin)


def without_members(line: bytes, names: Set[str]) -> bytes:
    """A line that is known to be a valid object, less all members of these names, each with one comma."""
    found = members(line)
    if not found.spans:
        return line
    out = [line[: found.keys[0]]]
    before, kept = 0, False
    for (key, _, stop), begin in zip(found.spans, found.keys, strict=True):
        if key not in names:
            out.append(line[before if kept else begin : stop])
            kept = True
        before = stop
    return b"".join([*out, line[before:]])


def _space(line: bytes, at: int) -> int:
    found = _SPACE.match(line, at)
    assert found is not None
    return found.end()


def _string_end(line: bytes, at: int) -> int:
    found = _STRING.match(line, at)
    assert found is not None, "the line is a valid object"
    return found.end()


def _value_end(line: bytes, at: int) -> int:
    if line[at] == ord('"'):
        return _string_end(line, at)
    if line[at] not in b"{[":
        found = _PLAIN.match(line, at)
        assert found is not None, "the line is a valid object"
        return found.end()
    depth = 0
    while True:
        found = _IN_CONTAINER.search(line, at)
        assert found is not None, "the line is a valid object"
        at = found.end()
        if found[0] == b'"':
            at = _string_end(line, found.start())
        else:
            depth += 1 if found[0] in b"{[" else -1
            if depth == 0:
                return at
