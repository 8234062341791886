"""A model of the kernels in plain Python: slow, and plain to see that it is right."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

from gristmill.kernels import unicode
from gristmill.kernels.unicode import Class

class_of = cache(unicode.class_of)


def chars(text: str) -> dict[str, int]:
    counted = {
        "letters": Class.LETTER,
        "digits": Class.DIGIT,
        "alphanumeric": Class.ALPHANUMERIC,
        "spaces": Class.SPACE,
        "punctuation": Class.PUNCTUATION,
        "upper": Class.UPPER,
        "brackets": Class.BRACKET,
        "plain": Class.PLAIN,
    }
    return {"count": len(text), **{name: sum(bool(class_of(c) & bit) for c in text) for name, bit in counted.items()}}


def symbols(text: str) -> dict[str, int]:
    return {"hashes": text.count("#"), "ellipses": text.count("...") + text.count("…") + text.count("⋯")}


def words(text: str) -> dict[str, int]:
    found = text.split()
    return {
        "count": len(found),
        "chars": sum(map(len, found)),
        "longest": max(map(len, found), default=0),
        "with_letter": sum(any(Class.LETTER in class_of(c) for c in word) for word in found),
    }


def split_lines(text: str) -> list[str]:
    return re.split("\r?\n", text)


def visible_lines(text: str) -> list[str]:
    return [line for line in split_lines(text) if line.strip()]


def visible_paragraphs(text: str) -> list[str]:
    found: list[list[str]] = [[]]
    for line in split_lines(text):
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return ["\n".join(lines) for lines in found if lines]


ELLIPSES = tuple(form.format(dots) for dots in ("...", "…", "⋯") for form in ("{}", "[{}]", "({})"))


def lines(text: str) -> dict[str, int]:
    found = visible_lines(text)
    return {
        "count": len(found),
        "chars": sum(map(len, found)),
        "bullets": sum(Class.BULLET in class_of(line.strip()[0]) for line in found),
        "ellipses": sum(line.strip().endswith(ELLIPSES) for line in found),
        "end_marks": sum(Class.END_MARK in class_of(line.strip()[-1]) for line in found),
        "distinct": len(set(found)),
        "distinct_chars": sum(map(len, set(found))),
    }


def paragraphs(text: str) -> dict[str, int]:
    found = visible_paragraphs(text)
    return {
        "count": len(found),
        "chars": sum(map(len, found)),
        "distinct": len(set(found)),
        "distinct_chars": sum(map(len, set(found))),
    }


def covered(words: list[str], places: list[int], n: int) -> int:
    """Characters of the words in the n-grams at ``places``, and one for each gap inside one of them."""
    inside = {place + k for place in places for k in range(n)}
    gaps = {place + k for place in places for k in range(n - 1)}
    return sum(len(words[k]) for k in inside) + len(gaps)


def top(text: str, n: int) -> int:
    words = text.split()
    grams = [tuple(words[k : k + n]) for k in range(len(words) - n + 1)]
    if not grams:
        return 0
    best, count = Counter(grams).most_common(1)[0]  # the first of several
    return covered(words, [k for k, gram in enumerate(grams) if gram == best], n) if count > 1 else 0


def duplicate(text: str, n: int) -> int:
    words = text.split()
    seen: set[tuple[str, ...]] = set()
    places = []
    for k in range(len(words) - n + 1):
        gram = tuple(words[k : k + n])
        if gram in seen:
            places.append(k)
        seen.add(gram)
    return covered(words, places, n)


def boilerplate(text: str, phrases: tuple[str, ...]) -> dict[str, int]:
    def lower(part: str) -> str:
        return "".join(c.lower() if c.isascii() else c for c in part)

    found = visible_paragraphs(text)
    hit = [any(phrase in lower(part) for phrase in phrases) for part in found]
    free = [k for k, one in enumerate(hit) if not one]
    return {
        "paragraphs": len(hit),
        "hits": sum(hit),
        "leading": free[0] if free else len(hit),
        "trailing": len(hit) - 1 - free[-1] if free else len(hit),
    }
