"""Features of the documents of a batch: each array has one value for each document."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Self

from gristmill.kernels import compile as compiling
from gristmill.kernels.compile import Kernel
from gristmill.kernels.unicode import spread, tables
from gristmill.lazy import Array, np

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts

NGRAMS = 10
"""N-grams up to this length are counted together: the longest in Gopher's rules."""
SHORTEST_NGRAM = 2
"""And from this length on: counting repeated words takes longer than all other lengths together."""


COUNT_CLASSES = Kernel("char_kernels.count_classes")
COUNT_CHARS = Kernel("char_kernels.count_chars")
COUNT_SYMBOLS = Kernel("char_kernels.count_symbols")
SPLIT_WORDS = Kernel("word_kernels.split_words")
COUNT_LISTED = Kernel("word_kernels.count_listed")
COUNT_FEW_LISTED = Kernel("word_kernels.count_few_listed")
MOST_LINES = Kernel("line_kernels.most_lines")
SPLIT_LINES = Kernel("line_kernels.split_lines")
REPEATED_NGRAMS = Kernel("ngram_kernels.repeated_ngrams")
FIND_URLS = Kernel("search_kernels.find_urls")
FIND_PHRASES = Kernel("search_kernels.find_phrases")
FIND_BYTES = Kernel("search_kernels.find_bytes")

KERNELS = {
    "chars": (COUNT_CLASSES,),
    "length": (COUNT_CHARS,),
    "symbols": (COUNT_SYMBOLS,),
    "words": (SPLIT_WORDS,),
    "listed_words": (COUNT_LISTED, COUNT_FEW_LISTED),
    "lines": (MOST_LINES, SPLIT_LINES),
    "paragraphs": (MOST_LINES, SPLIT_LINES),
    "ngrams": (REPEATED_NGRAMS,),
    "urls": (FIND_URLS,),
    "boilerplate": (FIND_PHRASES,),
    "contains": (FIND_BYTES,),
}
"""The kernels of each group of features."""
PREFIX, SUFFIX, ANYWHERE = 0, 1, 2
"""Where `FIND_BYTES` searches."""
PHRASE_BITS = 11
"""Bits of the hash by which `FIND_PHRASES` finds where a phrase may begin."""
SALT = int.from_bytes(os.urandom(8), "little")
"""Changes the places in hash tables and no result: texts cannot be written so that all their words collide.

Collisions would make the kernels slow.
"""
SHARED = {"shared": True}
"""Marks a field without one value for each document. It is kept whole when documents are selected."""


def preload(groups: Iterable[str]) -> None:
    """Load the kernels of some groups of features. At the very first time they are compiled."""
    kernels = dict.fromkeys(one for group in sorted(groups) for one in KERNELS[group])
    if kernels:
        tables()
        compiling.preload(list(kernels))


@dataclass(frozen=True)
class Features:
    """Arrays over documents."""

    def select(self, mask: Array) -> Self:
        """Return the features of some of the documents."""
        return type(self)(
            **{
                f.name: getattr(self, f.name) if f.metadata.get("shared") else getattr(self, f.name)[mask]
                for f in fields(self)
            }
        )


@dataclass(frozen=True)
class Chars(Features):
    """Characters (code points), all and by class (see `unicode.Class`)."""

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
class Length(Features):
    """Characters (code points), without classes: much faster than `Chars`."""

    count: Array


@dataclass(frozen=True)
class Symbols(Features):
    """The symbols that Gopher's rule counts. ``....`` is one ellipsis, ``......`` two."""

    hashes: Array
    ellipses: Array


@dataclass(frozen=True)
class Words(Features):
    """Words as `str.split` returns them. Lengths are in characters."""

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
    """How many different words of the list occur."""


@dataclass(frozen=True)
class Lines(Features):
    """Lines that are not blank. A line ends with ``\\n`` or ``\\r\\n``, which are not part of it.

    A repeated line is the same to the byte.
    """

    count: Array
    chars: Array
    bullets: Array
    """Lines whose first visible character is a bullet."""
    ellipses: Array
    """Lines that end with an ellipsis, bare or alone in brackets. White space after it does not count."""
    end_marks: Array
    """Lines that end like a sentence. White space after the end does not count."""
    distinct: Array
    distinct_chars: Array


@dataclass(frozen=True)
class Paragraphs(Features):
    """Paragraphs: runs of lines that are not blank. A line end between two lines counts as one character."""

    count: Array
    chars: Array
    distinct: Array
    distinct_chars: Array


@dataclass(frozen=True)
class NGrams(Features):
    """Characters in repeated n-grams of words: column ``n - 1`` is of n.

    An n-gram has the characters of its words and `Texts.gap` between them. Overlaps count once.
    """

    top: Array
    """In all occurrences of the most frequent n-gram; of several, the first. 0 if no n-gram is repeated."""
    duplicate: Array
    """In all occurrences except the first of each n-gram."""
    smallest: int = field(metadata=SHARED)
    """The columns of shorter n-grams are empty."""

    @property
    def largest(self) -> int:
        n: int = self.top.shape[1]
        return n


@dataclass(frozen=True)
class Urls(Features):
    """Addresses that begin with ``http://`` or ``https://``."""

    chars: Array
    porn: Array
    """Addresses that contain "porn"."""


@dataclass(frozen=True)
class Boilerplate(Features):
    """Paragraphs, and hits: paragraphs that contain one of some phrases."""

    paragraphs: Array
    hits: Array
    leading: Array
    """Hits with only hits before them."""
    trailing: Array
    """Hits with only hits after them."""


def chars_of(texts: Texts) -> Chars:
    out = np.zeros((9, len(texts)), np.int64)
    ascii_ = np.empty(128, np.uint64)
    COUNT_CLASSES(texts.arrays, tables(), spread(), ascii_, out)
    return Chars(*out)


def length_of(texts: Texts) -> Length:
    out = np.empty(len(texts), np.int64)
    COUNT_CHARS(texts.arrays, out)
    return Length(out)


def symbols_of(texts: Texts) -> Symbols:
    out = np.zeros((2, len(texts)), np.int64)
    COUNT_SYMBOLS(texts.arrays, out)
    return Symbols(*out)


def words_of(texts: Texts) -> Words:
    sizes = texts.ends - texts.starts
    out = np.zeros((4, len(texts)), np.int64)
    first = np.zeros(len(texts) + 1, np.int64)
    hashes, lengths = (np.empty(int(sizes.sum()) // 5 + 16, kind) for kind in (np.uint64, np.uint32))
    done = 0
    while True:
        done = SPLIT_WORDS(texts.arrays, tables(), done, (hashes, lengths), out, first)
        count = int(first[done])
        if done == len(texts):
            break
        size = max(2 * len(hashes), count + int(sizes[done]) // 2 + 1)
        hashes, lengths = (
            np.concatenate([one[:count], np.empty(size - count, one.dtype)]) for one in (hashes, lengths)
        )
    return Words(out[0], out[1], out[2], out[3], first[:-1], first[1:], hashes[:count], lengths[:count])


def lines_of(texts: Texts) -> tuple[Lines, Paragraphs]:
    out = np.zeros((11, len(texts)), np.int64)
    most = MOST_LINES(texts.arrays)
    work = (np.empty((6, most), np.int64), np.empty((2, most), np.uint64), np.empty(4 * most + 8, np.int64))
    SPLIT_LINES(texts.arrays, tables(), np.uint64(SALT), work, out)
    return Lines(*out[:7]), Paragraphs(*out[7:])


def ngrams_of(words: Words, smallest: int, largest: int, gap: int) -> NGrams:
    top = np.zeros((largest, len(words.count)), np.int64)
    duplicate = np.zeros_like(top)
    most = int(words.count.max(initial=0)) + 1
    table = np.empty(1 << max(4, (4 * most - 1).bit_length()), np.uint32)
    work = (table, np.empty(most, np.uint64), np.empty((3, most), np.uint32), np.empty(most, np.int64))
    arrays = (words.hashes, words.lengths, words.first, words.last)
    REPEATED_NGRAMS(arrays, (smallest, gap, np.uint64(SALT)), work, top, duplicate)
    return NGrams(top.T, duplicate.T, smallest)


def listed_words_of(words: Words, listed: Sequence[str]) -> ListedWords:
    from gristmill.kernels.texts import Texts

    entries = Texts.of(list(dict.fromkeys(listed))).words
    if (entries.count != 1).any():
        raise ValueError("a list of words may only contain single words, without white space.")
    out = np.zeros((2, len(words.count)), np.int64)
    arrays = (words.hashes, words.first, words.last)
    small = _places_of_few(entries.hashes)
    if small is not None:
        COUNT_FEW_LISTED(arrays, entries.hashes, small, out)
        return ListedWords(*out)
    places = 1 << max(6, (64 * len(entries.count) - 1).bit_length())
    table, seen = np.full(places, -1, np.int64), np.full(len(entries.count), -1, np.int64)
    COUNT_LISTED(arrays, entries.hashes, table, seen, out)
    return ListedWords(*out)


def _places_of_few(hashes: Array) -> Array | None:
    """Return the table for `COUNT_FEW_LISTED`. None if there are too many words for it, or none."""
    if not 0 < len(hashes) <= 64:
        return None
    for bits in range(8, 13):  # larger ones would not stay in the cache
        places = (hashes & np.uint64((1 << bits) - 1)).astype(np.int64)
        if len(np.unique(places)) == len(places):
            table = np.zeros(1 << bits, np.int64)
            table[places] = np.arange(len(places))
            return table
    return None


def urls_of(texts: Texts) -> Urls:
    out = np.zeros((2, len(texts)), np.int64)
    FIND_URLS(texts.arrays, _url_bytes(), np.frombuffer(b"porn", np.uint8), out)
    return Urls(*out)


def boilerplate_of(texts: Texts, phrases: Sequence[str]) -> Boilerplate:
    """Find ``phrases``: in lower case, at least four bytes each. Letters beyond ASCII match in lower case only."""
    encoded = [phrase.encode() for phrase in phrases]
    if min(map(len, encoded)) < 4:
        raise ValueError("phrases must have at least four bytes.")
    edges = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    out = np.zeros((4, len(texts)), np.int64)
    joined = np.frombuffer(b"".join(encoded), np.uint8)
    begins = np.zeros(1 << PHRASE_BITS, np.uint8)
    FIND_PHRASES(texts.arrays, tables(), joined, edges, begins, out)
    return Boilerplate(*out)


def contains(texts: Texts, wanted: str, position: str) -> Array:
    """Return whether each document has ``wanted`` as its "prefix", as its "suffix", or "any"where."""
    where = {"prefix": PREFIX, "suffix": SUFFIX, "any": ANYWHERE}[position]
    out = np.zeros(len(texts), np.bool_)
    sought = np.array(list(wanted.encode("utf-8", "surrogatepass")), np.uint8)
    FIND_BYTES(texts.arrays, sought, where, out)
    return out


@cache
def _url_bytes() -> Array:
    allowed = np.zeros(256, np.uint8)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for char in letters + letters.lower() + "0123456789" + "$-_@.&+/:=?#~" + "!*(),":
        allowed[ord(char)] = 1
    return allowed
