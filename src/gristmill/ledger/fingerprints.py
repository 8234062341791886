"""Names in the fingerprint of a run, and lists of changes for messages."""

from __future__ import annotations

from collections.abc import Sequence

CODE, CODE_PARTS = "code", "code_parts"
"""Keys of a described stage: a hash of its code, and one of each of its functions and constants by name."""


def listed(changes: Sequence[str], most: int = 10) -> str:
    """Return the first lines, indented, and the number of the others."""
    more = f"\n    and {len(changes) - most:,} more" if len(changes) > most else ""
    return "".join(f"\n    {change}" for change in changes[:most]) + more
