"""The documents of a batch as bytes, with everything that was computed from them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gristmill.kernels import features
from gristmill.lazy import Array, np

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Texts:
    """UTF-8 texts in one buffer: text ``i`` is ``data[starts[i]:ends[i]]``.

    Words, lines, n-grams and the like are computed when they are first asked for, and once for all filters. `select`
    keeps what was computed.
    """

    gap: int = 1
    """How many characters between two words count in an n-gram: 0 if the text has no spaces between its words."""

    def __init__(self, data: Array, starts: Array, ends: Array) -> None:
        self.data = data
        self.starts = starts
        self.ends = ends
        self._strings: list[str] | None = None
        self._computed: dict[Hashable, Any] = {}

    @classmethod
    def of(cls, strings: Sequence[str | None]) -> Texts:
        """Return some strings as texts; None as an empty text."""
        from gristmill.tasks.arrow import utf8

        edges, data = utf8([text or "" for text in strings])
        return cls(np.frombuffer(data, np.uint8), edges[:-1], edges[1:])

    @classmethod
    def of_column(cls, column: pa.ChunkedArray) -> Texts:
        """Return the texts of a column of strings; a null as an empty text."""
        import pyarrow as pa

        from gristmill.tasks.arrow import one_array

        array = one_array(column)
        if array.type != pa.large_string():
            array = array.cast(pa.large_string())
        if array.null_count:
            array = array.fill_null("")
        if not len(array):  # its buffers may be missing
            nothing = np.zeros(0, np.int64)
            return cls(np.zeros(0, np.uint8), nothing, nothing)
        _, offsets, data = array.buffers()
        edges = np.frombuffer(offsets, dtype=np.int64, count=len(array) + 1, offset=8 * array.offset)
        edges = np.require(edges, requirements="A")
        bytes_ = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
        return cls(bytes_, edges[:-1], edges[1:])

    @property
    def arrays(self) -> tuple[Array, Array, Array]:
        """The arrays as kernels take them."""
        return self.data, self.starts, self.ends

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, i: int) -> str:
        return self.data[self.starts[i] : self.ends[i]].tobytes().decode("utf-8")

    def strings(self) -> list[str]:
        """Return all texts as Python strings, which are made once."""
        if self._strings is None:
            self._strings = [self[i] for i in range(len(self))]
        return self._strings

    def select(self, mask: Array) -> Texts:
        """Return some of the texts, with what was computed from them. The bytes are not copied."""
        part = Texts(self.data, self.starts[mask], self.ends[mask])
        part.gap = self.gap
        if self._strings is not None:
            part._strings = [text for text, kept in zip(self._strings, mask, strict=True) if kept]
        part._computed = {key: value.select(mask) for key, value in self._computed.items()}
        return part

    def computed(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of ``compute``, computed once. It must have ``select(mask)``, like `features.Features`."""
        if key not in self._computed:
            self._computed[key] = compute()
        value: T = self._computed[key]
        return value

    @property
    def chars(self) -> features.Chars:
        return self.computed("chars", lambda: features.chars_of(self))

    @property
    def length(self) -> features.Length:
        return self.computed("length", lambda: features.length_of(self))

    @property
    def symbols(self) -> features.Symbols:
        return self.computed("symbols", lambda: features.symbols_of(self))

    @property
    def words(self) -> features.Words:
        return self.computed("words", lambda: features.words_of(self))

    def listed_words(self, listed: tuple[str, ...]) -> features.ListedWords:
        """Return the counts of ``listed`` words. Each is a single word; upper and lower case differ."""
        return self.computed(("listed", listed), lambda: features.listed_words_of(self.words, listed))

    @property
    def lines(self) -> features.Lines:
        self._split_lines()
        lines: features.Lines = self._computed["lines"]
        return lines

    @property
    def paragraphs(self) -> features.Paragraphs:
        self._split_lines()
        paragraphs: features.Paragraphs = self._computed["paragraphs"]
        return paragraphs

    def _split_lines(self) -> None:
        if "lines" not in self._computed:
            self._computed["lines"], self._computed["paragraphs"] = features.lines_of(self)

    def ngrams(self, n: int) -> features.NGrams:
        """Return the repeated n-grams of this length, and of others."""
        known: features.NGrams | None = self._computed.get("ngrams")
        if known is None or not known.smallest <= n <= known.largest:
            smallest, largest = min(n, features.SHORTEST_NGRAM), max(n, features.NGRAMS)
            if known is not None:
                smallest, largest = min(smallest, known.smallest), max(largest, known.largest)
            known = self._computed["ngrams"] = features.ngrams_of(self.words, smallest, largest, self.gap)
        return known

    @property
    def urls(self) -> features.Urls:
        return self.computed("urls", lambda: features.urls_of(self))

    def boilerplate(self, phrases: tuple[str, ...]) -> features.Boilerplate:
        """Return the counts of paragraphs with one of ``phrases``, which are in lower case."""
        return self.computed(("boilerplate", phrases), lambda: features.boilerplate_of(self, phrases))
