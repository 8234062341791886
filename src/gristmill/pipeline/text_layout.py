"""Text for people within a width: tables that leave columns out, and lines that wrap."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

from gristmill.metrics import format as fmt

LEAST_COLUMNS = 40
LEAST_NAME = 20
"""Columns that a name has before a table leaves a column out for it."""
GAP = 2


def terminal_columns() -> int | None:
    """The width of the terminal that standard output is, or of COLUMNS; None where there is neither: nothing is cut."""
    if os.environ.get("COLUMNS", "").isdecimal() or (sys.stdout is not None and sys.stdout.isatty()):
        return max(LEAST_COLUMNS, shutil.get_terminal_size((80, 24)).columns)
    return None


def wrapped(text: str, columns: int | None, indent: int = 0) -> list[str]:
    """A line in as many as it takes; those after the first are indented two columns more."""
    begin = " " * indent
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
    """Rows of a name and numbers: the first of the ``choices`` of columns that fits, with names shortened to fit."""
    widths = [max(fmt.width(row[i]) for row in rows) for i in range(len(rows[0]))]
    least = min(widths[0], LEAST_NAME)
    chosen = choices[0]
    for chosen in choices:
        numbers = sum(widths[i] + GAP for i in chosen[1:])
        if columns is None or least + numbers <= columns:
            break
    room = widths[0] if columns is None else max(1, min(widths[0], columns - sum(widths[i] + GAP for i in chosen[1:])))
    for row in rows:
        cells = [row[i].rjust(widths[i]) for i in chosen[1:]]
        yield (" " * GAP).join([padded(row[0], room), *cells]).rstrip()


def padded(text: str, columns: int) -> str:
    """A text of exactly so many columns."""
    short = fmt.shorten(text, columns)
    return short + " " * (columns - fmt.width(short))


def near_path(path: str) -> str:
    """A local path as seen from the current folder, if it is below that; anything else as it is."""
    here = os.getcwd().rstrip("/") + "/"
    return path[len(here) :] if path.startswith(here) and len(path) > len(here) else path
