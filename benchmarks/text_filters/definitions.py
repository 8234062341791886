"""The rules of the benchmark in plain Python, in gristmill's definition and in others that peers have.

Each function takes a text and keyword arguments; without these it is gristmill's definition. An argument changes one
thing, so that it shows whether that one thing is what two implementations disagree about.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import mean

BULLETS = tuple("•‣⁃⁌⁍∙○●◘◦⦾⦿▶◀■□▪▫–-*")
CURATOR_BULLETS = tuple("•‣⁃⁌⁍∙○●◘◦⦾⦿")
DATATROVE_BULLETS = ("•", "-")
ELLIPSES = tuple(mark.format(dots) for dots in ("...", "…", "⋯") for mark in ("{}", "({})", "[{}]"))
CURATOR_ELLIPSES = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")
STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
TOP = {2: 0.2, 3: 0.18, 4: 0.16}
DUPLICATE = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
PUNCTUATION = frozenset("!/—”:&(\\#%+^]~“„';’{|´[=-`*–$«,><)?…@_.\"}»")


def word_count(text: str, without_signs: bool = False) -> bool:
    """``without_signs``: words of nothing but punctuation do not count."""
    return 50 <= len(_words(text, without_signs)) <= 100_000


def mean_word_length(text: str, without_signs: bool = False) -> bool:
    words = _words(text, without_signs)
    return bool(words) and 3 <= mean(map(len, words)) <= 10


def symbols_to_words(text: str, whole_words: bool = False) -> bool:
    """``whole_words``: only words count that are a sign and nothing else, hashes and ellipses together."""
    words = text.split()
    if not words:
        return True
    if whole_words:
        found = sum(word in CURATOR_ELLIPSES or len(re.findall("#+", word)) > len(word) / 2 for word in words)
        return found / len(words) <= 0.1
    hashes, ellipses = text.count("#"), text.count("...") + text.count("…") + text.count("⋯")
    return max(hashes, ellipses) / len(words) <= 0.1


def bullets(text: str, marks: tuple[str, ...] = BULLETS, blank_lines: bool = False) -> bool:
    """``blank_lines``: they are lines too."""
    return _share(line.lstrip().startswith(marks) for line in _lines(text, blank_lines)) <= 0.9


def ellipsis(text: str, marks: tuple[str, ...] = ELLIPSES, blank_lines: bool = False) -> bool:
    return _share(line.rstrip().lower().endswith(marks) for line in _lines(text, blank_lines)) <= 0.3


def words_with_letters(text: str) -> bool:
    return _share(any(map(str.isalpha, word)) for word in text.split()) >= 0.8


def stop_words(text: str, occurrences: bool = False) -> bool:
    """``occurrences``: the same word twice is two."""
    words = text.split()
    return (sum(word in STOP_WORDS for word in words) if occurrences else len(STOP_WORDS & set(words))) >= 2


def duplicate_lines(text: str, by_char: bool = False, of_text: bool = False, blank_lines: bool = False) -> bool:
    """``of_text``: the share is that of the whole text, white space and all, not that of the lines."""
    return _repeated(text, _lines(text, blank_lines), by_char, of_text)


def duplicate_paragraphs(text: str, by_char: bool = False, of_text: bool = False, at: str = r"\n(?:\s*\n)+") -> bool:
    """``at``: what stands between paragraphs."""
    parts = [part for part in re.split(at, text) if part.strip()]
    return _repeated(text, parts, by_char, of_text)


def top_n_gram(
    text: str,
    n: int,
    as_string: bool = False,
    overlaps_twice: bool = False,
    once: bool = False,
    tie: str = "first",
    short: bool = True,
) -> bool:
    """``as_string``: where the n-gram stands in the text with single spaces, within longer words too.

    ``overlaps_twice``: what two occurrences share counts twice; ``once``: an n-gram that is there once counts;
    ``tie``: of several that are as frequent the "first", or the one that covers "most" or "least"; ``short``: whether
    documents of fewer than n words are kept.
    """
    words = text.split()
    if len(words) < n:
        return short
    counts = Counter(zip(*(words[i:] for i in range(n)), strict=False))
    most = max(counts.values())
    if most == 1 and not once:
        return True
    ties = [gram for gram, count in counts.items() if count == most]

    def covered(gram: tuple[str, ...]) -> int:
        string = " ".join(gram)
        if as_string:
            return text.count(string) * len(string)
        if overlaps_twice:
            return most * len(string)
        return _covered(words, n, (i for i in range(len(words) - n + 1) if tuple(words[i : i + n]) == gram))

    chosen = ties[:1] if tie == "first" else ties
    chars = (min if tie == "least" else max)(map(covered, chosen))
    return chars / len(text) <= TOP[n]


def duplicate_n_grams(
    text: str, n: int, spaces: bool = True, overlapping: bool = True, joined: bool = False, short: bool = True
) -> bool:
    """``spaces``: those between words count; ``overlapping``: n-grams within a repeated one are looked at too.

    ``joined``: n-grams are the same if their letters are, wherever words end; ``short``: whether documents of fewer
    than n words are kept.
    """
    words = text.split()
    if len(words) < n:
        return short
    seen: set[tuple[str, ...] | str] = set()
    places = []
    i = 0
    while i + n <= len(words):
        gram = "".join(words[i : i + n]) if joined else tuple(words[i : i + n])
        if gram in seen:
            places.append(i)
            i += 1 if overlapping else n
        else:
            seen.add(gram)
            i += 1
    if not spaces:
        within = {j for place in places for j in range(place, place + n)}
        return sum(len(words[j]) for j in within) / len(text) <= DUPLICATE[n]
    return _covered(words, n, places) / len(text) <= DUPLICATE[n]


def _words(text: str, without_signs: bool) -> list[str]:
    words = text.split()
    return [word for word in words if not PUNCTUATION.issuperset(word)] if without_signs else words


def _lines(text: str, blank_lines: bool) -> list[str]:
    return text.splitlines() if blank_lines else [line for line in text.split("\n") if line.strip()]


def _share(holds: Iterable[bool]) -> float:
    return mean(found) if (found := [float(one) for one in holds]) else 0.0


def _repeated(text: str, parts: Sequence[str], by_char: bool, of_text: bool) -> bool:
    if not parts:
        return True
    if not by_char:
        return len(set(parts)) / len(parts) >= 0.7
    whole, different = sum(map(len, parts)), sum(map(len, set(parts)))
    return (whole - different) / len(text) <= 0.2 if of_text else different / whole >= 0.8


def _covered(words: Sequence[str], n: int, places: Iterable[int]) -> int:
    """Characters of n-grams at these places, each counted once, with one for each gap within them."""
    chars = 0
    done = 0
    for place in places:
        for j in range(max(place, done), place + n):
            chars += len(words[j]) + (j > place)
        done = place + n
    return chars
