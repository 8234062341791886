"""The problems of a pipeline file, collected so that one error shows all of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from gristmill.errors import PipelineFileError

MOST_SHOWN = 20


class Problems:
    """Messages, each with its place. `check` raises if there are any."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, where: str, text: str) -> None:
        line = f"{where}: {text}"
        if line not in self.lines:
            self.lines.append(line)

    def __bool__(self) -> bool:
        return bool(self.lines)

    def check(self) -> None:
        if self.lines:
            more = [f"and {len(self.lines) - MOST_SHOWN} more"] if len(self.lines) > MOST_SHOWN else []
            raise PipelineFileError("\n".join(self.lines[:MOST_SHOWN] + more))


def near(name: str, names: Iterable[str]) -> str | None:
    """Return the name that was probably meant, whatever the case of its letters."""
    by_folded = {known.casefold(): known for known in names}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, names: Iterable[str], else_: str = "") -> str:
    """Return the hint that ends a message about an unknown name."""
    names = list(names)
    meant = near(name, names)
    return f" Did you mean {meant!r}?" if meant else (f" {else_}" if else_ else "")
