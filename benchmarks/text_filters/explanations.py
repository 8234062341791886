"""Definitions of peers that differ: for each rule the differences that may be why two verdicts differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import definitions as d


@dataclass(frozen=True)
class Difference:
    """One thing that a peer does otherwise, as arguments to the rule in definitions.py."""

    says: str
    changes: Mapping[str, Any]


def differences(**changes: str) -> list[Difference]:
    """Differences that are each a flag to set, with what it means."""
    return [Difference(says, {name: True}) for name, says in changes.items()]


OURS: dict[str, Callable[..., bool]] = {
    "word_count": d.word_count,
    "mean_word_length": d.mean_word_length,
    "symbols_to_words": d.symbols_to_words,
    "bullets": d.bullets,
    "ellipsis": d.ellipsis,
    "words_with_letters": d.words_with_letters,
    "stop_words": d.stop_words,
    "duplicate_lines": d.duplicate_lines,
    "duplicate_paragraphs": d.duplicate_paragraphs,
    "duplicate_line_chars": partial(d.duplicate_lines, by_char=True),
    "duplicate_paragraph_chars": partial(d.duplicate_paragraphs, by_char=True),
    **{f"top_{n}_gram": partial(d.top_n_gram, n=n) for n in d.TOP},
    **{f"duplicate_{n}_grams": partial(d.duplicate_n_grams, n=n) for n in d.DUPLICATE},
}

SPACY = "words are spaCy's: punctuation marks are words of their own"
ONE_SIGN = "counts words that are `#` or an ellipsis and nothing else; signs that touch a word go uncounted"
SHORT = Difference("drops documents of fewer than n words", {"short": False})
TIE = "of several n-grams that are as frequent takes any: by the hash seed, not the first"
ONCE = "an n-gram that is there once counts too: short documents go"
WITHOUT_SIGNS = differences(without_signs="words of punctuation only do not count")
BLANK_LINES = differences(blank_lines="blank lines are lines")
EMPTY_LINE = [Difference("only an empty line parts paragraphs, and empty paragraphs are some", {"at": "\n\n"})]
OF_TEXT = differences(of_text="the share is of the whole text, not of the lines or paragraphs")

CURATOR: dict[str, list[Difference]] = {
    "symbols_to_words": differences(whole_words=ONE_SIGN),
    "bullets": [Difference("`-`, `*`, `–` and squares are no bullets", {"marks": d.CURATOR_BULLETS})],
    "ellipsis": [Difference('"read more" (in any case) and `-»` are ellipses', {"marks": d.CURATOR_ELLIPSES})],
    "stop_words": differences(occurrences="the same stop word twice is two; the paper asks for two of the words"),
    "duplicate_paragraphs": EMPTY_LINE,
    "duplicate_paragraph_chars": EMPTY_LINE,
    **{
        f"top_{n}_gram": [
            SHORT,
            *differences(
                once=ONCE,
                as_string="removes the n-gram as a string: not where a line breaks in it, but within longer words",
            ),
            Difference(TIE, {"tie": "most"}),
            Difference(TIE, {"tie": "least"}),
        ]
        for n in d.TOP
    },
    **{f"duplicate_{n}_grams": [SHORT] for n in d.DUPLICATE},
}

DATATROVE: dict[str, list[Difference]] = {
    "word_count": WITHOUT_SIGNS,
    "mean_word_length": WITHOUT_SIGNS,
    "bullets": [Difference("only `•` and `-` are bullets", {"marks": d.DATATROVE_BULLETS}), *BLANK_LINES],
    "ellipsis": BLANK_LINES,
    "duplicate_lines": BLANK_LINES,
    "duplicate_line_chars": OF_TEXT,
    "duplicate_paragraph_chars": OF_TEXT,
    **{
        f"top_{n}_gram": differences(once=ONCE, overlaps_twice="what two occurrences share is counted twice")
        for n in d.TOP
    },
    **{
        f"duplicate_{n}_grams": [
            Difference("spaces between words do not count", {"spaces": False}),
            Difference(
                "continues after a repeated n-gram: one that begins within it is not seen", {"overlapping": False}
            ),
            *differences(joined="n-grams are compared without the spaces between their words"),
        ]
        for n in d.DUPLICATE
    },
}


def explain(rule: str, text: str, verdict: bool, known: list[Difference]) -> str | None:
    """The fewest differences that together make gristmill's rule say ``verdict``."""
    for chosen in _fewest_first(known):
        changes = {name: value for one in chosen for name, value in one.changes.items()}
        if OURS[rule](text, **changes) == verdict:
            return "; ".join(dict.fromkeys(one.says for one in chosen))
    return None


def _fewest_first(known: list[Difference]) -> Iterator[tuple[Difference, ...]]:
    for count in range(1, len(known) + 1):
        yield from combinations(known, count)
