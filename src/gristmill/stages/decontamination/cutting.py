"""Documents without the passages that they share with a reference."""

from __future__ import annotations

from dataclasses import dataclass

BETWEEN = "\n\n"
"""The text between pieces."""


@dataclass(frozen=True)
class Remainder:
    """The rest of a document, and its number of pieces."""

    text: str
    pieces: int


def remove_spans(text: str, spans: list[tuple[int, int]], window: int, min_piece: int) -> Remainder:
    """Return ``text`` without ``spans``, in characters, and ``window`` characters on each side of them.

    Pieces shorter than ``min_piece`` characters are removed too.
    """
    left: list[str] = []
    at = 0
    for start, end in [*_merged(spans, window, len(text)), (len(text), len(text))]:
        piece = text[at:start]
        if piece and len(piece) >= min_piece:
            left.append(piece)
        at = end
    return Remainder(BETWEEN.join(left), len(left))


def _merged(spans: list[tuple[int, int]], window: int, length: int) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        start, end = max(start - window, 0), min(end + window, length)
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def in_characters(data: bytes, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Convert spans of bytes to spans of characters."""
    edges = sorted({edge for span in spans for edge in span})
    chars: dict[int, int] = {}
    at = count = 0
    for edge in edges:
        count += len(data[at:edge].decode("utf-8"))
        chars[edge] = count
        at = edge
    return [(chars[start], chars[end]) for start, end in spans]
