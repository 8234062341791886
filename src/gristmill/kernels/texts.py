"""The documents of a batch as bytes, with what was computed of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


class Texts:
    """UTF-8 texts in one buffer: text ``i`` is ``data[starts[i]:ends[i]]``.

    What is computed of them (words, lines, n-grams, ...) is computed once and shared by all who ask.
    """

    def __init__(self, data: np.ndarray[Any, Any], starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> None:
        self.data = data
        self.starts = starts
        self.ends = ends
        self._strings: list[str] | None = None

    @classmethod
    def of(cls, strings: Sequence[str | None]) -> Texts:
        import pyarrow as pa

        return cls.of_column(pa.chunked_array([pa.array(strings, type=pa.large_string())]))

    @classmethod
    def of_column(cls, column: pa.ChunkedArray) -> Texts:
        """The texts of a column of strings; a null is an empty text."""
        import pyarrow as pa

        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=pa.large_string())
        if array.type != pa.large_string():
            array = array.cast(pa.large_string())
        if array.null_count:
            array = array.fill_null("")
        _, offsets, data = array.buffers()
        edges = np.frombuffer(offsets, dtype=np.int64, count=len(array) + 1, offset=8 * array.offset)
        bytes_ = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
        return cls(bytes_, edges[:-1], edges[1:])

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, i: int) -> str:
        return self.data[self.starts[i] : self.ends[i]].tobytes().decode("utf-8")

    def strings(self) -> list[str]:
        """All texts as Python strings, made once."""
        if self._strings is None:
            self._strings = [self[i] for i in range(len(self))]
        return self._strings

    def select(self, mask: np.ndarray[Any, Any]) -> Texts:
        """Some of the texts, with what was computed of them; nothing is copied but that."""
        part = Texts(self.data, self.starts[mask], self.ends[mask])
        if self._strings is not None:
            part._strings = [text for text, kept in zip(self._strings, mask, strict=True) if kept]
        return part
