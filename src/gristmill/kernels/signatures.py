"""Hashes, shingles and sketches of texts, which deduplication compares instead of the texts, and groups of equal ones.

Functions work on whole batches, in one thread, without the GIL. Results depend only on a text and the arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from gristmill.kernels import compile as compiling
from gristmill.kernels import constants
from gristmill.kernels.compile import Kernel
from gristmill.kernels.features import SALT
from gristmill.kernels.unicode import tables
from gristmill.lazy import Array, np

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts


__all__ = [
    "Sketch",
    "Sketcher",
    "estimated_jaccard",
    "exact_hashes",
    "first_equal",
    "jaccards",
    "labels",
    "piece_hashes",
    "preload",
    "shingle_sets",
    "union_edges",
]

CHUNK = 4096
"""Shingles that are made at a time: they and their code points stay in the cache."""
PART = 8192
"""Keys that share a table, which stays in the cache with them."""
MOST_PARTS = 4096
MOST_KEYS = (1 << 31) - 1
UNITS = ("char", "word")
PIECES = ("line", "paragraph")

HASH_TEXTS = Kernel("hash_kernels.hash_texts")
COUNT_LINES = Kernel("hash_kernels.count_lines")
HASH_PIECES = Kernel("hash_kernels.hash_pieces")
LIST_SHINGLES = Kernel("sketch_kernels.list_shingles")
SKETCH = {"fast": Kernel("sketch_kernels.sketch_fast"), "classic": Kernel("sketch_kernels.sketch_classic")}
MAKE_SETS = Kernel("set_kernels.make_sets")
COMPARE_SETS = Kernel("set_kernels.compare_sets")
FIND_FIRST = Kernel("group_kernels.find_first")
UNITE = {"int64": Kernel("group_kernels.unite_ints"), "uint32": Kernel("group_kernels.unite_uint32")}
LABEL = {"int64": Kernel("group_kernels.label_ints"), "uint32": Kernel("group_kernels.label_uint32")}

KEYS, SHINGLES, ROUNDS = 1, 2, 3
"""The purposes of `constants.numbers`."""


KERNELS = {
    "exact": (HASH_TEXTS,),
    "pieces": (COUNT_LINES, HASH_PIECES),
    "fast": (SKETCH["fast"],),
    "classic": (SKETCH["classic"],),
    "sets": (LIST_SHINGLES, MAKE_SETS, COMPARE_SETS),
    "groups": (FIND_FIRST, *UNITE.values(), *LABEL.values()),
}
"""The kernels of each part of this module. Shingles of words also need those of `features`' "words"."""


def preload(parts: Iterable[str]) -> None:
    """Load the kernels of some parts of `KERNELS`. At the very first time they are compiled."""
    compiling.preload([one for part in sorted(set(parts)) for one in KERNELS[part]])


def exact_hashes(texts: Texts, seed: int = 0) -> Array:
    """Return a hash of 128 bits of the bytes of each text: ``uint64``, one row of two for each."""
    out = np.empty((len(texts), 2), np.uint64)
    HASH_TEXTS(texts.arrays, keys(seed), out)
    return out


def piece_hashes(texts: Texts, unit: str = "line") -> tuple[Array, Array, Array, Array, Array]:
    """Return hashes of the pieces of all texts, as `exact_hashes`, and each piece's text, begin, end and size.

    A piece is a line, or a paragraph: a run of lines that are not blank. Begin and end are places in ``texts.data``,
    without the newline after the piece. White space at both ends is neither hashed nor counted. Blank pieces are
    skipped.
    """
    if unit not in PIECES:
        raise ValueError(f"unit is {unit!r}; pieces are by {' or '.join(map(repr, PIECES))}.")
    most = COUNT_LINES(texts.arrays)
    hashes, places = np.empty((most, 2), np.uint64), np.empty((4, most), np.int64)
    count = HASH_PIECES(texts.arrays, tables(), keys(0), int(unit == "paragraph"), hashes, places)
    document, begin, end, size = places[:, :count]
    return hashes[:count], document, begin, end, size


@dataclass(frozen=True)
class Sketch:
    """The sketch of each text, by which similar texts are found."""

    bands: Array
    """``uint64``, a row for each band, a column for each text. Texts that share a number in a band are candidates."""
    small: Array
    """``uint8``, a row for each text, for `estimated_jaccard`."""


@dataclass(frozen=True)
class Sketcher:
    """Makes sketches of texts, by which similar texts are found.

    Two texts share a band with probability ``1 - (1 - j ** minhashes_per_band) ** num_bands``, if ``j`` is the Jaccard
    similarity of their sets of shingles. A shingle is ``ngrams`` characters (code points), or words as `str.split`
    returns them; a shorter text is one shingle. ``method`` "fast" is fast similarity sketching: one hash for each
    shingle, unless a text has few. "classic" is MinHash with a hash for each minimum: no better, and several times
    slower on long texts. Minima have 52 bits, or 32 with "classic"; ``use_64_bit_hash`` decides only the format of
    `signatures`.
    """

    ngrams: int = 24
    unit: str = "char"
    num_bands: int = 20
    minhashes_per_band: int = 13
    seed: int = 42
    method: str = "fast"
    use_64_bit_hash: bool = False

    def __post_init__(self) -> None:
        counts = {"ngrams": self.ngrams, "num_bands": self.num_bands, "minhashes_per_band": self.minhashes_per_band}
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name} is {count}; it must be at least 1.")
        if self.unit not in UNITS:
            raise ValueError(f"unit is {self.unit!r}; shingles are by {' or '.join(map(repr, UNITS))}.")
        if self.method not in SKETCH:
            raise ValueError(f"method is {self.method!r}; there are {' and '.join(map(repr, SKETCH))}.")
        if self.num_hashes > constants.MOST_HASHES:
            raise ValueError(
                f"num_bands * minhashes_per_band is {self.num_hashes}; it can be {constants.MOST_HASHES} at most."
            )

    @property
    def num_hashes(self) -> int:
        return self.num_bands * self.minhashes_per_band

    def sketch(self, texts: Texts) -> Sketch:
        bands = np.empty((self.num_bands, len(texts)), np.uint64)
        small = np.empty((len(texts), self.num_hashes), np.uint8)
        self._run(texts, bands, small, np.empty((0, self.num_hashes), np.uint64))
        return Sketch(bands, small)

    def signatures(self, texts: Texts) -> Array:
        """Return the minima, a row for each text: ``uint32``, or with ``use_64_bit_hash`` ``uint64``."""
        out = np.empty((len(texts), self.num_hashes), np.uint64)
        self._run(texts, np.empty((0, len(texts)), np.uint64), np.empty((0, self.num_hashes), np.uint8), out)
        if self.use_64_bit_hash:
            return out
        return ((out * np.uint64(constants.FOLD)) >> np.uint64(32)).astype(np.uint32)

    def shingle_seed(self) -> int:
        return constants.numbers(self.seed, SHINGLES, 1)[0]

    def salts(self) -> Array:
        """Return a salt for each round. There are two rounds for each minimum."""
        return np.array(constants.numbers(self.seed, ROUNDS, 2 * self.num_hashes), np.uint64)

    def _run(self, texts: Texts, bands: Array, small: Array, signatures: Array) -> None:
        source, starts, ends, shingle, work = _source(texts, self.unit, self.ngrams, self.shingle_seed())
        size = len(work[1])
        minima = np.empty(self.num_hashes, np.uint64)
        places: tuple[Array, ...]
        if self.method == "classic":
            places = (np.empty(size, np.uint32), minima)
        else:
            # With more distinct shingles than this, an empty place is too improbable ever to occur.
            few = max(size, 48 * self.num_hashes)
            places = (np.empty(few, np.uint64), np.empty(1 << (2 * few - 1).bit_length(), np.int32), minima)
        out = (self.minhashes_per_band, bands, small, signatures)
        SKETCH[self.method](source, starts, ends, shingle, self.salts(), work, places, out)


def estimated_jaccard(left: Array, right: Array) -> Array:
    """Estimate the Jaccard similarity of pairs of texts by rows of `Sketch.small`: one value for each pair of rows."""
    accidental = 1 / 256
    equal = (left == right).mean(axis=-1)
    return np.maximum(0.0, (equal - accidental) / (1 - accidental))


def shingle_sets(texts: Texts, ngrams: int = 24, unit: str = "char") -> tuple[Array, Array]:
    """Return the distinct shingles of each text as sorted hashes. Text ``i`` has ``values[edges[i]:edges[i + 1]]``.

    This takes eight bytes of memory for each byte of text, and as much again for the distinct shingles.
    """
    source, starts, ends, shingle, work = _source(texts, unit, ngrams, constants.numbers(0, SHINGLES, 1)[0])
    values = np.empty(int(np.maximum(ends - starts, 1).sum()), np.uint64)
    edges = np.empty(len(texts) + 1, np.int64)
    LIST_SHINGLES(source, starts, ends, shingle, work, values, edges)
    most = int(np.diff(edges).max(initial=0))
    count = MAKE_SETS(values, edges, np.empty(most + 1, np.int64), np.empty(most, np.uint64))
    return values[:count].copy(), edges


def jaccards(values: Array, edges: Array, left: Array, right: Array) -> Array:
    """Return the exact Jaccard similarity of pairs of texts by their `shingle_sets`: one value for each pair."""
    out = np.empty(len(left), np.float64)
    pairs = (np.ascontiguousarray(side, np.int64) for side in (left, right))
    COMPARE_SETS(values, edges, *pairs, out)
    return out


@cache
def keys(seed: int) -> Array:
    """Return the keys of `HASH_TEXTS`."""
    return np.array(constants.numbers(seed, KEYS, 4 * constants.BLOCK_CHUNKS + 2), np.uint64)


def _source(texts: Texts, unit: str, ngrams: int, seed: int) -> tuple[Any, ...]:
    """Return the arguments that `sketch_kernels` share: source, starts, ends, shingle, work."""
    size = max(CHUNK, 8 * ngrams)
    work = (np.empty(size + 1, np.uint64), np.empty(size, np.uint64))
    shingle = (ngrams, np.uint64(pow(constants.STEP, ngrams, 1 << 64)), np.uint64(seed))
    if unit == "char":
        return (texts.data, np.empty(0, np.uint64), 0), texts.starts, texts.ends, shingle, work
    if unit != "word":
        raise ValueError(f"unit is {unit!r}; shingles are by {' or '.join(map(repr, UNITS))}.")
    words = texts.words
    return (texts.data, words.hashes, 1), words.first, words.last, shingle, work


def first_equal(keys: Array) -> Array:
    """Return for each key, ``uint64`` or a row of two, the first position of an equal one.

    The time is proportional to the number of keys, however many are equal. It takes 40 bytes of memory for each key,
    including the result.
    """
    width = 1 if keys.ndim == 1 else keys.shape[1]
    count = len(keys)
    if keys.ndim > 2 or width not in (1, 2):
        raise ValueError(f"keys are numbers or rows of two, not an array of shape {keys.shape}.")
    if count > MOST_KEYS:
        raise ValueError(f"{count} keys are too many at once: split them, for example by their first byte.")
    flat = np.ascontiguousarray(keys, np.uint64).reshape(-1)
    parts = min(MOST_PARTS, count // PART + 1)
    out = np.empty(count, np.int64)
    table = np.empty(1 << max(3, (2 * count).bit_length()), np.uint32)  # used as far as the largest part needs
    work = (np.zeros(parts + 1, np.int64), np.empty_like(flat), np.empty(count, np.uint32), table)
    FIND_FIRST(flat, width, np.uint64(SALT), *work, out)
    return out


def union_edges(parent: Array, left: Array, right: Array) -> None:
    """Unite the sets of the two numbers of each pair. ``parent`` is ``arange(n)`` at first, ``int64`` or ``uint32``.

    Each number in it points at a smaller one of its set; the smallest points at itself. The sets and their `labels`
    do not depend on the order of the pairs.
    """
    pairs = (np.ascontiguousarray(side, np.int64) for side in (left, right))
    UNITE[parent.dtype.name](parent, *pairs)


def labels(parent: Array) -> Array:
    """Point each number in ``parent``, made by `union_edges`, at the smallest of its set. Return ``parent``."""
    LABEL[parent.dtype.name](parent)
    return parent
