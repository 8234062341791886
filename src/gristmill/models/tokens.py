"""Token ids of many texts, one after another, without padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.lazy import np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class TokenLists:
    """The token ids of several texts: those of text ``i`` are ``ids[offsets[i]:offsets[i + 1]]``.

    An Arrow column of type ``list<int32>`` holds the same two buffers, so tokens travel between stages without a copy.
    """

    ids: Ints
    """int32."""
    offsets: Ints
    """int64, one more than there are texts, the first is 0."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def take(self, order: Sequence[int] | Ints) -> TokenLists:
        """The texts at these positions, in this order."""
        order = np.asarray(order, dtype=np.int64)
        lengths = self.lengths[order]
        offsets = np.zeros(len(order) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        shift = np.repeat(self.offsets[:-1][order] - offsets[:-1], lengths)
        return TokenLists(self.ids[np.arange(offsets[-1]) + shift], offsets)

    def to_arrow(self) -> pa.Array:
        import pyarrow as pa

        return pa.LargeListArray.from_arrays(pa.array(self.offsets), pa.array(self.ids))

    @classmethod
    def from_arrow(cls, column: pa.Array | pa.ChunkedArray) -> TokenLists:
        """The tokens in a column of lists without nulls."""
        import pyarrow as pa

        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # of no chunks
            column = pa.array([], type=column.type)
        offsets = column.offsets.to_numpy().astype(np.int64)
        ids = column.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]
        return cls(ids.astype(np.int32, copy=False), offsets - offsets[0])

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> TokenLists:
        offsets = np.zeros(len(lists) + 1, dtype=np.int64)
        np.cumsum([len(each) for each in lists], out=offsets[1:])
        ids = np.fromiter((token for each in lists for token in each), dtype=np.int32, count=int(offsets[-1]))
        return cls(ids, offsets)


def cut(lengths: Ints, first: int, budget: int, most: int | None) -> Iterator[tuple[int, int]]:
    """Batches of neighbours from ``first`` on, as positions: at most ``budget`` tokens and ``most`` texts."""
    ends = np.cumsum(lengths)
    start = first
    while start < len(lengths):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + budget, side="right")), start + 1)
        if most is not None:
            stop = min(stop, start + most)
        yield start, stop
        start = stop
