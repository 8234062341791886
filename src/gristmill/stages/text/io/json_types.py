"""The Arrow type that holds JSON values exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from gristmill.tasks.json_text import MAX_EXACT

MAX_DEPTH = 32
"""Values that are nested deeper than this stay JSON text."""
MAX_FIELDS = 1000
"""Objects with more fields than this, in all documents together, are taken for dictionaries: they stay JSON text."""


def type_of_values(values: Iterable[Any]) -> pa.DataType | None:
    """The type of all values; None if they have none in common, or it would round a number."""
    found = _type(values, 0)
    return found if found is not None and is_usable(found) else None


def is_usable(kind: pa.DataType) -> bool:
    """Whether a type of values from JSON is small enough to be the type of a column."""
    return all(number < MAX_FIELDS and depth <= MAX_DEPTH for number, depth in enumerate(_leaves(kind, 0)))


def is_rounded(number: bytes) -> bool:
    """Whether a whole number is so large that a parser makes a float of it."""
    return number.lstrip(b"-").isdigit() and not -(2**63) <= int(number) < 2**63


def _leaves(kind: pa.DataType, depth: int) -> Iterator[int]:
    """The depth of each type in a type that holds no other."""
    if not kind.num_fields:
        yield depth
    for i in range(kind.num_fields):
        yield from _leaves(kind.field(i).type, depth + 1)


def _type(values: Iterable[Any], depth: int) -> pa.DataType | None:
    there = [value for value in values if value is not None]
    kinds = {type(value) for value in there}
    if not kinds:
        return pa.null()
    if depth > MAX_DEPTH:
        return None
    if kinds == {list}:
        inner = _type((item for value in there for item in value), depth + 1)
        return None if inner is None else pa.list_(inner)
    if kinds == {dict}:
        return _struct(there, depth)
    return _scalar_type(kinds, there, depth)


def _struct(values: list[dict[str, Any]], depth: int) -> pa.DataType | None:
    members: dict[str, list[Any]] = {}
    for value in values:
        for key, member in value.items():
            members.setdefault(key, []).append(member)
    if len(members) > MAX_FIELDS:
        return None
    fields = []
    for key, found in members.items():
        kind = _type(found, depth + 1)
        if kind is None:
            return None
        fields.append(pa.field(key, kind))
    return pa.struct(fields)


def _scalar_type(kinds: set[type], values: list[Any], depth: int) -> pa.DataType | None:
    if kinds == {str}:
        return pa.large_string()
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64() if all(-(2**63) <= x < 2**63 for x in values) else None
    if kinds not in ({float}, {int, float}):
        return None
    if depth and any(abs(x) >= MAX_EXACT for x in values):  # it may have been a whole number that was rounded
        return None
    exact = all(abs(x) <= MAX_EXACT for x in values if isinstance(x, int))
    return pa.float64() if exact else None
