"""What is known of the documents of a batch: for each document one value in each array."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gristmill.kernels import compile as compiling
from gristmill.kernels.unicode import tables

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts

Array = np.ndarray[Any, Any]
NGRAMS = 10
"""N-grams up to this long are counted together: the longest that Gopher's rules ask for."""


KERNELS = {
    "chars": ("char_kernels", "count_classes"),
    "symbols": ("char_kernels", "count_symbols"),
    "words": ("word_kernels", "split_words"),
    "listed_words": ("word_kernels", "count_listed"),
    "lines": ("line_kernels", "split_lines"),
    "paragraphs": ("line_kernels", "split_lines"),
    "ngrams": ("ngram_kernels", "repeated_ngrams"),
    "urls": ("search_kernels", "find_urls"),
    "boilerplate": ("search_kernels", "find_phrases"),
    "contains": ("search_kernels", "find_bytes"),
}
"""The kernel behind each group of features: its module and its name."""
SALT = np.uint64(int.from_bytes(os.urandom(8), "little"))
"""Decides where entries stand in hash tables, and nothing else: texts made to meet in one place would be slow."""
SHARED = {"shared": True}
"""Marks a field that is not one value for each document, and stays whole when documents are selected."""


def preload(groups: Iterable[str]) -> None:
    """Load the kernels behind some groups of features; the first time ever they are compiled."""
    kernels = {KERNELS[group] for group in groups}
    if kernels:
        tables()
        modules = "gristmill.kernels"
        compiling.preload([getattr(importlib.import_module(f"{modules}.{m}"), name) for m, name in sorted(kernels)])


@dataclass(frozen=True)
class Features:
    """Arrays over documents."""

    def select(self, mask: Array) -> Self:
        """Those of some of the documents."""
        return type(self)(
            **{
                f.name: getattr(self, f.name) if f.metadata.get("shared") else getattr(self, f.name)[mask]
                for f in fields(self)
            }
        )


@dataclass(frozen=True)
class Chars(Features):
    """Characters (code points), and how many of them are what (see `unicode.Class`)."""

    count: Array
    letters: Array
    digits: Array
    alphanumeric: Array
    spaces: Array
    punctuation: Array
    upper: Array
    brackets: Array
    plain: Array


@dataclass(frozen=True)
class Symbols(Features):
    """The symbols that Gopher's rule counts. ``....`` is one ellipsis, ``......`` two."""

    hashes: Array
    ellipses: Array


@dataclass(frozen=True)
class Words(Features):
    """Words as `str.split` gives them. Lengths are in characters."""

    count: Array
    chars: Array
    """Without the white space between them."""
    longest: Array
    with_letter: Array
    first: Array
    """Where a document's words begin in ``hashes`` and ``lengths``; they end before ``last``."""
    last: Array
    hashes: Array = field(metadata=SHARED)
    lengths: Array = field(metadata=SHARED)


@dataclass(frozen=True)
class ListedWords(Features):
    """Words that are on a list."""

    count: Array
    distinct: Array
    """How many of the list there are."""


@dataclass(frozen=True)
class Lines(Features):
    """Lines that are not blank, as they stand between newlines (``\\n``). A repeated line is the same to the byte."""

    count: Array
    chars: Array
    bullets: Array
    """Those whose first visible character is a bullet."""
    ellipses: Array
    """Those that end, but for white space, with an ellipsis, bare or alone in brackets."""
    end_marks: Array
    """Those that end, but for white space, as a sentence does."""
    distinct: Array
    distinct_chars: Array


@dataclass(frozen=True)
class Paragraphs(Features):
    """Paragraphs: runs of lines that are not blank, with the newlines between them."""

    count: Array
    chars: Array
    distinct: Array
    distinct_chars: Array


@dataclass(frozen=True)
class NGrams(Features):
    """Characters in repeated n-grams of words: column ``n - 1`` is of n.

    An n-gram's characters are those of its words and `Texts.gap` between them; what overlaps counts once.
    """

    top: Array
    """In all occurrences of the most frequent n-gram, the first of them if there are several; 0 if none is repeated."""
    duplicate: Array
    """In all occurrences but the first of each n-gram."""

    @property
    def largest(self) -> int:
        n: int = self.top.shape[1]
        return n


@dataclass(frozen=True)
class Urls(Features):
    """Addresses that begin with ``http://`` or ``https://``."""

    chars: Array
    porn: Array
    """Those with "porn" in them."""


@dataclass(frozen=True)
class Boilerplate(Features):
    """Paragraphs with one of some phrases."""

    paragraphs: Array
    hits: Array
    leading: Array
    """Hits with nothing but hits before them."""
    trailing: Array
    """Hits with nothing but hits behind them."""


def chars_of(texts: Texts) -> Chars:
    from gristmill.kernels import char_kernels as kernels

    out = np.zeros((9, len(texts)), np.int64)
    kernels.count_classes(texts.data, texts.starts, texts.ends, *tables(), kernels.spread(), out)
    return Chars(*out)


def symbols_of(texts: Texts) -> Symbols:
    from gristmill.kernels.char_kernels import count_symbols

    out = np.zeros((2, len(texts)), np.int64)
    count_symbols(texts.data, texts.starts, texts.ends, out)
    return Symbols(*out)


def words_of(texts: Texts) -> Words:
    from gristmill.kernels.word_kernels import split_words

    out = np.zeros((4, len(texts)), np.int64)
    first = np.zeros(len(texts) + 1, np.int64)
    hashes, lengths = split_words(texts.data, texts.starts, texts.ends, *tables(), out, first)
    return Words(out[0], out[1], out[2], out[3], first[:-1], first[1:], hashes[: first[-1]], lengths[: first[-1]])


def lines_of(texts: Texts) -> tuple[Lines, Paragraphs]:
    from gristmill.kernels.line_kernels import split_lines

    out = np.zeros((11, len(texts)), np.int64)
    split_lines(texts.data, texts.starts, texts.ends, *tables(), SALT, out)
    return Lines(*out[:7]), Paragraphs(*out[7:])


def ngrams_of(words: Words, largest: int, gap: int) -> NGrams:
    from gristmill.kernels.ngram_kernels import repeated_ngrams

    top = np.zeros((largest, len(words.count)), np.int64)
    duplicate = np.zeros_like(top)
    repeated_ngrams(words.hashes, words.lengths, words.first, words.last, largest, gap, SALT, top, duplicate)
    return NGrams(top.T, duplicate.T)


def listed_words_of(words: Words, listed: Sequence[str]) -> ListedWords:
    from gristmill.kernels.texts import Texts
    from gristmill.kernels.word_kernels import count_listed

    entries = Texts.of(list(dict.fromkeys(listed))).words
    if (entries.count != 1).any():
        raise ValueError("a list of words holds single words, without white space.")
    out = np.zeros((2, len(words.count)), np.int64)
    count_listed(words.hashes, words.first, words.last, entries.hashes, out)
    return ListedWords(*out)


def urls_of(texts: Texts) -> Urls:
    from gristmill.kernels.search_kernels import find_urls

    out = np.zeros((2, len(texts)), np.int64)
    find_urls(texts.data, texts.starts, texts.ends, _URL_BYTES, np.frombuffer(b"porn", np.uint8), out)
    return Urls(*out)


def boilerplate_of(texts: Texts, phrases: Sequence[str]) -> Boilerplate:
    """``phrases`` in lower case, at least four bytes each; letters beyond ASCII match in that case only."""
    from gristmill.kernels.search_kernels import find_phrases

    encoded = [phrase.encode() for phrase in phrases]
    if min(map(len, encoded)) < 4:
        raise ValueError("phrases must have at least four bytes.")
    edges = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    out = np.zeros((4, len(texts)), np.int64)
    joined = np.frombuffer(b"".join(encoded), np.uint8)
    find_phrases(texts.data, texts.starts, texts.ends, *tables(), joined, edges, out)
    return Boilerplate(*out)


def contains(texts: Texts, wanted: str, position: str) -> Array:
    """Whether each document has ``wanted`` as its "prefix", as its "suffix", or "any"where."""
    from gristmill.kernels import search_kernels as kernels

    where = {"prefix": kernels.PREFIX, "suffix": kernels.SUFFIX, "any": kernels.ANYWHERE}[position]
    out = np.zeros(len(texts), np.bool_)
    sought = np.array(list(wanted.encode("utf-8", "surrogatepass")), np.uint8)
    kernels.find_bytes(texts.data, texts.starts, texts.ends, sought, where, out)
    return out


def _url_bytes() -> Array:
    allowed = np.zeros(256, np.uint8)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for char in letters + letters.lower() + "0123456789" + "$-_@.&+/:=?#~" + "!*(),":
        allowed[ord(char)] = 1
    return allowed


_URL_BYTES = _url_bytes()
