"""Suggestions for a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, names: Iterable[str]) -> str | None:
    """Return the name that was probably meant, whatever the case of its letters."""
    by_folded = {known.casefold(): known for known in names}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, names: Iterable[str], else_: str = "") -> str:
    """Return the hint that ends a message about an unknown name; with ``else_`` if no name is near."""
    meant = near(name, names)
    return f" Did you mean {meant!r}?" if meant else (f" {else_}" if else_ else "")
