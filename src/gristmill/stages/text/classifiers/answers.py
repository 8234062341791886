"""The answer of a guard model, as a label."""

from __future__ import annotations

SAFE, UNSAFE, UNKNOWN = "safe", "unsafe", "unknown"
CATEGORIES = tuple(f"O{number}" for number in range(1, 14))


def label_of(answer: str, is_over: bool) -> str | None:
    """Return the label in an answer: safe, a category, or unknown. None if it takes more of the answer to tell.

    An answer is "safe", or "unsafe" with one category on a second line. ``is_over``: no more of it follows.

    >>> label_of("safe", False), label_of("unsafe\\nO1", False), label_of("unsafe\\nO1", True)
    ('safe', None, 'O1')
    """
    first, *rest = answer.lstrip().split("\n")
    verdict = first.strip()
    if verdict == SAFE:
        return SAFE
    if verdict != UNSAFE:
        may_become = not is_over and not rest and any(word.startswith(verdict) for word in (SAFE, UNSAFE))
        return None if may_become else UNKNOWN
    category = rest[0].strip() if rest else ""
    if len(rest) < 2 and not is_over:
        may_become = any(one.startswith(category) for one in CATEGORIES)
        return None if may_become else UNKNOWN
    return category if category in CATEGORIES else UNKNOWN
