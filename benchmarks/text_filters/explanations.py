"""What peers define otherwise: for each rule the differences that may be why two verdicts differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import definitions as d

Rule = Callable[..., bool]


@dataclass(frozen=True)
class Difference:
    """One thing that a peer does otherwise. ``rule`` is gristmill's with that one thing changed."""

    says: str
    rule: Rule


OURS: dict[str, Rule] = {
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

CURATOR: dict[str, list[Difference]] = {
    "symbols_to_words": [
        Difference(
            "counts words that are `#` or an ellipsis and nothing else; those that touch a word go uncounted",
            partial(d.symbols_to_words, whole_words=True),
        )
    ],
    "bullets": [Difference("`-`, `*` and `–` are no bullets", partial(d.bullets, marks=d.CURATOR_BULLETS))],
    "ellipsis": [Difference('"read more" and `-»` count as ellipses', partial(d.ellipsis, marks=d.CURATOR_ELLIPSES))],
    "stop_words": [
        Difference(
            "the same stop word twice counts as two; the paper asks for two words",
            partial(d.stop_words, occurrences=True),
        )
    ],
    "duplicate_paragraphs": [
        Difference("only an empty line parts paragraphs", partial(d.duplicate_paragraphs, at="\n\n")),
    ],
    "duplicate_paragraph_chars": [
        Difference("only an empty line parts paragraphs", partial(d.duplicate_paragraphs, by_char=True, at="\n\n")),
    ],
    **{
        f"top_{n}_gram": [
            Difference(
                "removes the n-gram as a string: not where a line breaks within it, but within longer words",
                partial(d.top_n_gram, n=n, as_string=True),
            ),
            Difference(
                "of several n-grams that are as frequent takes one by the hash seed, another one in each run",
                partial(d.top_n_gram, n=n, last_tie=True),
            ),
            Difference(
                "removes the n-gram as a string, and takes any of several that are as frequent",
                partial(d.top_n_gram, n=n, as_string=True, last_tie=True),
            ),
        ]
        for n in d.TOP
    },
}

DATATROVE: dict[str, list[Difference]] = {
    "word_count": [Difference("words of punctuation only do not count", partial(d.word_count, without_signs=True))],
    "mean_word_length": [
        Difference("words of punctuation only do not count", partial(d.mean_word_length, without_signs=True))
    ],
    "symbols_to_words": [
        Difference("bounds hashes and ellipses each for itself, not their sum", partial(d.symbols_to_words, each=True))
    ],
    "bullets": [
        Difference("only `•` and `-` are bullets", partial(d.bullets, marks=d.DATATROVE_BULLETS)),
        Difference("blank lines count as lines", partial(d.bullets, blank_lines=True)),
    ],
    "ellipsis": [Difference("blank lines count as lines", partial(d.ellipsis, blank_lines=True))],
    "duplicate_line_chars": [
        Difference(
            "the share is of the whole text, not of the lines", partial(d.duplicate_lines, by_char=True, of_text=True)
        )
    ],
    "duplicate_paragraph_chars": [
        Difference(
            "the share is of the whole text, not of the paragraphs",
            partial(d.duplicate_paragraphs, by_char=True, of_text=True),
        )
    ],
    **{
        f"top_{n}_gram": [
            Difference(
                "an n-gram that is there once counts: short documents are dropped",
                partial(d.top_n_gram, n=n, once=True),
            ),
            Difference("what two occurrences share is counted twice", partial(d.top_n_gram, n=n, overlaps_twice=True)),
        ]
        for n in d.TOP
    },
    **{
        f"duplicate_{n}_grams": [
            Difference("spaces between words do not count", partial(d.duplicate_n_grams, n=n, spaces=False)),
            Difference(
                "goes on behind a repeated n-gram: one that begins within it is not seen",
                partial(d.duplicate_n_grams, n=n, overlapping=False),
            ),
            Difference(
                "spaces do not count, and n-grams that begin within a repeated one are not seen",
                partial(d.duplicate_n_grams, n=n, spaces=False, overlapping=False),
            ),
        ]
        for n in d.DUPLICATE
    },
}
