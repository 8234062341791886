"""A model of the n-gram stage: slow, and in plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gristmill.kernels.overlap import SELECTORS, UNSPACED, WEIGHTS
from gristmill.kernels.unicode import Class, class_of

Word = tuple[str, int, int, int]
"""The word, its weight, and where it begins and ends, in characters."""


def kind_of(char: str) -> int:
    code = ord(char)
    return next((kind for kind, ranges in UNSPACED.items() if any(a <= code <= b for a, b in ranges)), 0)


def folded(char: str, normalize: bool) -> str:
    """The character as it counts; empty if it does not, a space if it is white space."""
    kinds = class_of(char)
    if kinds & Class.SPACE:
        return " "
    if not normalize:
        return char
    if not kinds & Class.ALPHANUMERIC or any(a <= ord(char) <= b for a, b in SELECTORS):
        return ""
    if char == "ς":
        return "σ"
    return char.lower()[0] if kinds & Class.UPPER else char


def words_of(text: str, normalize: bool) -> list[Word]:
    words: list[Word] = []
    begun = ""
    begin = end = 0
    for at, char in enumerate(text):
        new = folded(char, normalize)
        if new == "":
            continue
        if new == " " or kind_of(char):
            if begun:
                words.append((begun, WEIGHTS[0], begin, end))
            begun = ""
            if new != " ":
                words.append((new, WEIGHTS[kind_of(char)], at, at + 1))
            continue
        begin = begin if begun else at
        begun += new
        end = at + 1
    return [*words, (begun, WEIGHTS[0], begin, end)] if begun else words


def windows(words: list[Word], ngram: int) -> list[tuple[int, int]]:
    """From which word to which n-grams go."""
    found = []
    for start in range(len(words)):
        weight = 0
        for stop in range(start, len(words)):
            weight += words[stop][1]
            if weight >= ngram * WEIGHTS[0]:
                found.append((start, stop + 1))
                break
    return found


@dataclass
class Model:
    entries: list[list[str]]
    ngram: int
    min_words: int = 1
    max_frequency: int | None = None
    normalize: bool = True

    def __post_init__(self) -> None:
        self.grams = [self._of_entry(texts) for texts in self.entries]
        often = Counter(gram for grams in self.grams for gram in grams)
        if self.max_frequency is not None:
            self.grams = [{gram for gram in grams if often[gram] <= self.max_frequency} for grams in self.grams]

    def _of_entry(self, texts: list[str]) -> set[tuple[str, ...]]:
        grams = set()
        for text in texts:
            words = words_of(text, self.normalize)
            weight = sum(word[1] for word in words)
            if weight >= self.ngram * WEIGHTS[0]:
                grams |= {self._gram(words, *window) for window in windows(words, self.ngram)}
            elif words and weight >= self.min_words * WEIGHTS[0]:
                grams.add(self._gram(words, 0, len(words)))
        return grams

    @staticmethod
    def _gram(words: list[Word], start: int, stop: int) -> tuple[str, ...]:
        return tuple(word[0] for word in words[start:stop])

    def find(self, text: str, min_matches: int = 1, min_share: float = 0.0) -> tuple[int, int, set[int]]:
        """The entry that overlaps most, by how many n-grams, and the characters in what is common with any."""
        words = words_of(text, self.normalize)
        everywhere = [(a, b) for a in range(len(words)) for b in range(a + 1, min(a + self.ngram * 4, len(words)) + 1)]
        there: dict[tuple[str, ...], list[tuple[int, int]]] = {}
        for a, b in everywhere:
            there.setdefault(self._gram(words, a, b), []).append((a, b))
        best, most = -1, 0
        best_score = 0.0
        covered: set[int] = set()
        for number, grams in enumerate(self.grams):
            hits = grams & set(there)
            if not hits or len(hits) < min(min_matches, len(grams)) or len(hits) < min_share * len(grams) - 1e-9:
                continue
            score = len(hits) / len(grams) if min_share else len(hits)
            if score > best_score:
                best, most, best_score = number, len(hits), score
            for gram in hits:
                for a, b in there[gram]:
                    covered.update(range(words[a][2], words[b - 1][3]))
        return best, most, covered
