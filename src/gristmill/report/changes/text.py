"""The comparison of two runs as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gristmill.metrics.format import escaped, shorten, width
from gristmill.report.place import Data

LONGEST = 110
SHOWN = 12
"""Groups of documents that changed sides, in each direction."""


def text_of(found: Data) -> Iterator[str]:
    """Yield the lines of a comparison."""
    for name, run in zip("AB", found["runs"], strict=True):
        yield f"{name}: {escaped(run['output'])}  ({escaped(str(run['name']))}, {run['state']})"
    yield ""
    yield "configuration" if found["configuration"] else "configuration: the same"
    for one in found["configuration"]:
        key = f" {one['key']}" if one["key"] else ""
        yield _short(f"  {one['stage']}{key}: {one['a']} -> {one['b']}".rstrip())
    for title in ("input", "versions"):
        yield title if found[title] else f"{title}: the same"
        for one in found[title]:
            yield _short(f"  {one['name']}: {one['a']} -> {one['b']}")
    yield ""
    yield from _documents(found["documents"])
    yield ""
    yield from _speed(found["speed"])
    yield ""
    yield from _sides(found["sides"])


def _documents(rows: Sequence[Data]) -> Iterator[str]:
    cells: list[tuple[str, ...]] = [("documents", "A", "B", "B - A")]
    for row in rows:
        a, b = row["a"], row["b"]
        change = "" if a is None or b is None or a == b else f"{b - a:+,}"
        name = f"    {row['reason']}" if row["reason"] else f"  {row['stage']}"
        cells.append((escaped(name), _count(a), _count(b), change))
    yield from _table(cells)


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _speed(rows: Sequence[Data]) -> Iterator[str]:
    cells: list[tuple[str, ...]] = [("speed", "A", "B", "B / A")]
    for row in rows:
        a, b = row["a"], row["b"]
        ratio = f"{b / a:.2f}" if a and b is not None else ""
        cells.append((escaped(f"  {row['name']}"), *("-" if x is None else f"{x:,.4g}" for x in (a, b)), ratio))
    yield from _table(cells)


def _table(cells: Sequence[tuple[str, ...]]) -> Iterator[str]:
    first = min(60, max(width(row[0]) for row in cells))
    widths = [max(len(row[i]) for row in cells) for i in range(1, len(cells[0]))]
    for row in cells:
        numbers = (cell.rjust(columns) for cell, columns in zip(row[1:], widths, strict=True))
        name = shorten(row[0], first)
        yield "  ".join([name + " " * (first - width(name)), *numbers]).rstrip()


def _sides(sides: Data) -> Iterator[str]:
    if sides.get("problem"):
        yield f"documents that changed sides: {sides['problem']}"
        return
    if sides["without_id"]:
        yield f"{sides['without_id']:,} documents have no field {sides['id_field']!r}: they were compared by their text"
    for key, words, run in (
        ("dropped_in_b", "kept in A, dropped in B", "B"),
        ("dropped_in_a", "dropped in A, kept in B", "A"),
    ):
        yield f"{words}: {sides[key]['documents']:,}"
        groups = sides[key]["groups"]
        for group in groups[:SHOWN]:
            yield _short(f"  {group['documents']:,} by {group['stage']} of {run}: {group['reason']}")
            for example in group["examples"]:
                yield _example(example)
        if len(groups) > SHOWN:
            yield f"  and {len(groups) - SHOWN} more reasons"


def _example(example: Data) -> str:
    score = "" if example.get("score") is None else f" (score {example['score']:.4g})"
    return _short(f"    {example.get('id', 'no id')}{score}: {example['text']}")


def _short(text: str) -> str:
    line = escaped(text[: 4 * LONGEST])
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
