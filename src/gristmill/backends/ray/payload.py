"""Payloads as they lie in Ray's object store: lists of arrays of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def to_bytes(parts: Sequence[Any]) -> bytearray:
    """A private, writable copy: what a stage gets is its own."""
    data = bytearray(sum(part.nbytes for part in parts))
    position = 0
    for part in parts:
        data[position : position + part.nbytes] = part.data
        position += part.nbytes
    return data
