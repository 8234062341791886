"""A cheap check of language by the characters of its alphabet."""

from __future__ import annotations

import difflib
import functools
from importlib import resources
from pathlib import Path

from gristmill.kernels import unicode
from gristmill.kernels.texts import Texts
from gristmill.kernels.unicode import count_in, space, table_of
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import AtLeast

COMMON = "0123456789!\"#$%&'()*+,-./:;=?@_\u2010\u2011\u2013\u2014\u2018\u2019\u201c\u201d\u2026"
"""Characters of all languages: digits and the punctuation of prose."""

ALIASES = {"in": "id", "iw": "he", "mo": "ro", "ns": "nso", "sh": "sr-Latn", "tl": "fil"}
"""Older names of languages, and those of the peers' histograms."""

PEERS_FOLDER = "histograms/checkpoint/edunov/cc60_multilingual/clean_hists"


@builtin
class HistogramFilter(AtLeast):
    """Keep documents in which more than ``threshold`` of the characters belong to the language ``lang``.

    The idea is that of the histograms of M2M-100 and NLLB (https://arxiv.org/abs/2207.04672, p. 30): if too many
    characters do not belong to a language, the text is in another one. The filter separates scripts well, and
    languages of one script hardly.

    The characters are those of Unicode's CLDR for some 370 languages (``de``, ``sr``, ``sr-Latn``), with digits
    and common punctuation. Nothing is downloaded. With ``cache_dir`` they are read from a histogram at
    ``<cache_dir>/<lang>``, or where NeMo Curator stores it. It has a character at the beginning of each line, the most
    frequent first; only those before ``threshold_char`` count.

    Differences to NeMo Curator: the score is the share itself, not 1 or 0. White space does not count, so padding has
    no effect. Latin letters do not belong to languages of other scripts; on the web they are frequent enough to be in
    their histograms. A document of white space has the score 0.
    """

    exclusive = True
    rule_text = "more than {0.least:.0%} of the characters are among those of {0.lang!r}"
    thresholds = {"threshold": "least"}

    def __init__(
        self, lang: str = "en", threshold: float = 0.8, cache_dir: str | None = None, threshold_char: str = "]"
    ) -> None:
        if not 0 <= threshold <= 1:
            raise ValueError(f"HistogramFilter: threshold must be a share from 0 to 1, not {threshold!r}.")
        self.lang = lang
        self.least = threshold
        self.alphabet = read_histogram(cache_dir, lang, threshold_char) if cache_dir else alphabet(lang)

    def preload(self) -> None:
        unicode.preload()
        table_of_alphabet(self.alphabet)

    def score_batch(self, texts: Texts) -> Array:
        chars, spaces = count_in(texts, space())
        _, known = count_in(texts, table_of_alphabet(self.alphabet))
        return known / np.maximum(chars - spaces, 1)

    def reasons(self, scores: Array) -> str:
        return f"characters strange to {self.lang!r}"


@functools.cache
def table_of_alphabet(chars: frozenset[str]) -> Array:
    return table_of(ord(char) for char in chars if not char.isspace())


def alphabet(lang: str) -> frozenset[str]:
    """Return the characters of a language in CLDR, and those of all languages."""
    lines = alphabets()
    wanted = lang.replace("_", "-")
    ranges = lines.get(ALIASES.get(wanted, wanted))
    if ranges is None:
        near = difflib.get_close_matches(lang, lines, n=3)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(
            f"HistogramFilter: the characters of the language {lang!r} are not known.{hint} "
            "Languages are named as in CLDR ('en', 'de', 'sr-Latn'); cache_dir takes other histograms."
        )
    chars = set(COMMON)
    for one in ranges.split():
        first, _, last = one.partition("-")
        chars.update(map(chr, range(int(first, 16), int(last or first, 16) + 1)))
    return frozenset(chars)


@functools.cache
def alphabets() -> dict[str, str]:
    """Return the table of alphabets: language to ranges of code points, in hexadecimal."""
    text = resources.files(__package__).joinpath("alphabets.txt").read_text(encoding="utf-8")
    pairs = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return {lang: ranges for lang, ranges in pairs}


def read_histogram(folder: str, lang: str, threshold_char: str) -> frozenset[str]:
    """Return the characters of a histogram file before the line of ``threshold_char``."""
    places = [Path(folder) / lang, Path(folder) / PEERS_FOLDER / lang]
    for place in places:
        if place.is_file():
            chars = set()
            with place.open(encoding="utf-8", newline="\n") as lines:
                for line in lines:
                    if line[0] == threshold_char:
                        break
                    chars.add(line[0])
            return frozenset(chars)
    raise FileNotFoundError(
        f"HistogramFilter: there is no histogram of {lang!r}: neither {places[0]} nor {places[1]} is a file. "
        "Without cache_dir the characters are those of Unicode's CLDR."
    )
