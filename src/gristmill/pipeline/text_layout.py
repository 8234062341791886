"""Text that fits a width: tables with fewer columns, and wrapped lines.

Control characters of names and reasons are escaped: some move the cursor or change the direction of a line.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

from gristmill.metrics import format as fmt

LEAST_COLUMNS = 40
LEAST_NAME = 20
"""A table drops columns until a name has this width."""
GAP = 2


def terminal_columns() -> int | None:
    """Return the width of the terminal of standard output, or COLUMNS; None without either: nothing is shortened."""
    if os.environ.get("COLUMNS", "").isdecimal() or (sys.stdout is not None and sys.stdout.isatty()):
        return max(LEAST_COLUMNS, shutil.get_terminal_size((80, 24)).columns)
    return None


def wrapped(text: str, columns: int | None, indent: int = 0) -> list[str]:
    """Wrap a line; lines after the first are indented two columns more."""
    begin = " " * indent
    text = fmt.escaped(text)
    if columns is None:
        return [begin + text]
    return textwrap.wrap(
        text,
        columns,
        initial_indent=begin,
        subsequent_indent=begin + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(rows: Sequence[Sequence[str]], choices: Sequence[Sequence[int]], columns: int | None = None) -> Iterator[str]:
    """Yield rows of a name and numbers, with the first of the ``choices`` of columns that fits."""
    rows = [[fmt.escaped(cell) for cell in row] for row in rows]
    widths = [max(fmt.width(row[i]) for row in rows) for i in range(len(rows[0]))]
    least = min(widths[0], LEAST_NAME)
    chosen = choices[0]
    for chosen in choices:
        numbers = sum(widths[i] + GAP for i in chosen[1:])
        if columns is None or least + numbers <= columns:
            break
    first = widths[0] if columns is None else max(1, min(widths[0], columns - sum(widths[i] + GAP for i in chosen[1:])))
    for row in rows:
        cells = [row[i].rjust(widths[i]) for i in chosen[1:]]
        yield (" " * GAP).join([padded(row[0], first), *cells]).rstrip()


def padded(text: str, columns: int) -> str:
    """Return a text of exactly this width."""
    short = fmt.shorten(text, columns)
    return short + " " * (columns - fmt.width(short))


def near_path(path: str) -> str:
    """Return a local path relative to the current folder if it is below it; others unchanged."""
    here = os.getcwd().rstrip("/") + "/"
    return path[len(here) :] if path.startswith(here) and len(path) > len(here) else path
