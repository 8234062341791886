"""Find documents that share n-grams of words with the entries of a reference."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from gristmill.kernels import compile as compiling
from gristmill.kernels.compile import Kernel
from gristmill.kernels.unicode import BLOCK, CODE_POINTS, Class, tables
from gristmill.lazy import Array, np

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts


LIST_NGRAMS = Kernel("overlap_kernels.list_ngrams")
SET_BITS = Kernel("overlap_kernels.set_bits")
FILL_TABLE = Kernel("overlap_kernels.fill_table")
FIND_OVERLAPS = Kernel("overlap_kernels.find_overlaps")

WEIGHTS = (4, 1, 2)
"""The weights of words between spaces, and of single characters of the scripts of `SHORT` and of `LONG`.

A word of Thai has about four characters, one of Chinese or Japanese about two.
"""
SHORT, LONG = 1, 2
UNSPACED = {
    SHORT: (
        *((0x0E00, 0x0EFF), (0x0F00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF)),  # Thai, Lao, Tibetan, Burmese, Khmer
        *((0x1950, 0x19DF), (0x1A20, 0x1AAF), (0xA9E0, 0xA9FF), (0xAA60, 0xAADF)),  # Tai, more Burmese
    ),
    LONG: (
        *((0x3005, 0x3007), (0x3040, 0x30FA), (0x30FC, 0x30FF), (0x3100, 0x312F), (0x31A0, 0x31BF), (0x31F0, 0x31FF)),
        *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9D), (0x1B000, 0x1B16F)),
        (0x20000, 0x3FFFF),
    ),
}
"""Scripts that are written without spaces between words: each of their characters is a word."""
SELECTORS = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
"""Variation selectors, which Unicode counts among the marks."""
BITS_PER_KEY = 16
"""Size of the bitmap that excludes most n-grams that are not in the reference."""


def preload() -> None:
    """Load kernels and tables in a process from which others are forked."""
    compiling.preload([LIST_NGRAMS, SET_BITS, FILL_TABLE, FIND_OVERLAPS])
    folds(True)


@cache
def folds(normalize: bool) -> Array:
    """Return the replacement of each code point.

    0 if it is skipped, the highest bit if it is white space; otherwise bit 30, the script's index in `WEIGHTS` from
    bit 24 on, and below that the code point in lower case. With ``normalize`` everything except letters, marks and
    numbers is skipped; without it nothing is, and case stays.
    """
    table = np.arange(CODE_POINTS, dtype=np.uint32) | np.uint32(1 << 30)
    if normalize:
        in_lower_case(table)
        table[_classes() & Class.ALPHANUMERIC == 0] = 0
        for first, last in SELECTORS:
            table[first : last + 1] = 0
    for kind, ranges in UNSPACED.items():
        for first, last in ranges:
            part = table[first : last + 1]
            part[part != 0] |= np.uint32(kind << 24)
    white_space(table)
    return table


def in_lower_case(table: Array) -> None:
    """Replace letters by their lower case, and a final sigma by a sigma."""
    # Letters of one version of Unicode only: versions of Python disagree on the case of later ones.
    for code in np.flatnonzero(_classes() & Class.UPPER).tolist():
        table[code] = ord(chr(code).lower()[0]) | 1 << 30
    table[ord("ς")] = ord("σ") | 1 << 30


def white_space(table: Array) -> None:
    """Set the highest bit of white space, and no other."""
    table[_classes() & Class.SPACE != 0] = 1 << 31


@cache
def _classes() -> Array:
    """Return the classes of all code points."""
    blocks, classes = tables()
    codes = np.arange(CODE_POINTS)
    found: Array = classes[blocks[codes // BLOCK].astype(np.int64) * BLOCK + codes % BLOCK]
    return found


@dataclass(frozen=True)
class Overlaps:
    """Overlaps of documents with a reference: each array has one value for each document."""

    entry: Array
    """The entry of the reference that overlaps most; -1 if none does."""
    matches: Array
    """The number of different n-grams of that entry in the document."""
    spans: Array
    """Begin and end, in bytes of the buffer, of what is common with any entry that the document overlaps enough.

    Empty unless requested. Sorted by their ends; they may overlap."""
    span_edges: Array
    """Where the spans of each document begin, and where the last one ends."""


@dataclass(frozen=True)
class NgramIndex:
    """The n-grams of the entries of a reference.

    An n-gram has ``ngram`` words, or the equivalent number of characters of scripts without spaces. A shorter text is
    one n-gram as a whole; a text shorter than ``min_words`` has none.
    """

    wanted: int
    """The least weight of an n-gram."""
    normalize: bool
    keys: Array
    """The different n-grams, sorted."""
    edges: Array
    """Where the entries of each n-gram begin in ``owners``."""
    owners: Array
    sizes: Array
    """The number of different n-grams of each entry."""
    lengths: Array
    """The numbers of words of texts that are one n-gram as a whole, sorted."""
    bits: Array
    table: Array
    lasts: Array
    """Bits of the final word of such texts."""

    @classmethod
    def of(
        cls,
        texts: Texts,
        entries: Array,
        ngram: int,
        min_words: int = 1,
        max_frequency: int | None = None,
        normalize: bool = True,
    ) -> NgramIndex:
        """Return the index of texts that belong to ``entries``, which are numbered from 0 on.

        N-grams of more than ``max_frequency`` entries are skipped.
        """
        wanted = ngram * WEIGHTS[0]
        most = int(((texts.ends - texts.starts) // 2 + 1).sum())
        keys, about, lasts = np.empty(most, np.uint64), np.empty((2, most), np.int64), np.zeros(most, np.uint64)
        prefixes, ring = _rings(wanted)
        count = LIST_NGRAMS(
            *(texts.arrays, _rules(normalize, wanted), min_words * WEIGHTS[0], (prefixes, ring[0])),
            *(keys, about, lasts),
        )
        keys, owners = keys[:count], entries[about[0, :count]]
        order = np.lexsort((owners, keys))
        keys, owners = keys[order], owners[order]
        new = np.ones(count, bool)
        new[1:] = (keys[1:] != keys[:-1]) | (owners[1:] != owners[:-1])
        keys, owners = keys[new], owners[new]
        different, owned = np.unique(keys, return_counts=True)
        if max_frequency is not None:
            rare = owned <= max_frequency
            owners = owners[np.repeat(rare, owned)]
            different, owned = different[rare], owned[rare]
        number = int(entries.max(initial=-1)) + 1
        whole = about[1, :count] > 0
        return cls(
            wanted=wanted,
            normalize=normalize,
            keys=different,
            edges=np.concatenate([np.zeros(1, np.int64), np.cumsum(owned, dtype=np.int64)]),
            owners=owners,
            sizes=np.bincount(owners, minlength=number).astype(np.int64),
            lengths=np.unique(about[1, :count][whole]),
            bits=_bits(different),
            table=_table(different),
            lasts=_bits(lasts[:count][whole]),
        )

    def needs(self, min_matches: int, min_share: float) -> Array:
        """Return how many n-grams of each entry a document must have to overlap it: all, if the entry has fewer."""
        shares = np.ceil(self.sizes * min_share - 1e-9).astype(np.int64)
        return np.maximum(np.minimum(min_matches, self.sizes), shares).clip(min=1)

    def find(self, texts: Texts, needs: Array, by_share: bool = False, with_spans: bool = False) -> Overlaps:
        """Find the entries that share at least ``needs`` n-grams with texts.

        With ``by_share`` the entry that overlaps most is the one with the largest share of its n-grams in the text,
        else the one with the largest number. The first wins if they are equal.
        """
        count = len(texts)
        out, span_edges = np.full((2, count), -1, np.int64), np.zeros(count + 1, np.int64)
        spans = np.empty((2, 256 if with_spans else 0), np.int64)
        seen, counts = np.zeros((1, len(self.keys)), np.int64), np.zeros((2, len(self.sizes)), np.int64)
        index = (self.bits, self.table, self.keys, self.lasts, self.lengths)
        entries = (self.edges, self.owners, needs, self.sizes, int(by_share), seen, counts)
        done = stamp = 0
        while True:
            done = FIND_OVERLAPS(
                *(texts.arrays, _rules(self.normalize, self.wanted), _rings(self.wanted), index, entries),
                *((done, stamp), out, (spans, span_edges)),
            )
            if done == count:
                return Overlaps(out[0], out[1], spans[:, : span_edges[-1]], span_edges)
            stamp += count
            spans = np.concatenate([spans, np.empty_like(spans)], axis=1)


def _rings(wanted: int) -> tuple[Array, Array]:
    size = 1 << (wanted + 1).bit_length()
    return np.zeros(size, np.uint64), np.zeros((2, size), np.int64)


def _rules(normalize: bool, wanted: int) -> tuple[Array, Array, Array, int]:
    return folds(normalize), np.array(WEIGHTS, np.int64), _powers(wanted), wanted


@cache
def _powers(wanted: int) -> Array:
    base, powers = 0xA24BAED4963EE407, [1]
    for _ in range(wanted + 1):
        powers.append(powers[-1] * base % (1 << 64))
    return np.array(powers, np.uint64)


def _bits(keys: Array) -> Array:
    bits = np.zeros(1 << max(6, (len(keys) * BITS_PER_KEY // 8).bit_length()), np.uint8)
    SET_BITS(keys, bits)
    return bits


def _table(keys: Array) -> Array:
    table = np.full(1 << max(4, (2 * len(keys)).bit_length()), -1, np.int64)
    FILL_TABLE(keys, table)
    return table
