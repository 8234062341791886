"""The pictures of a batch, each decoded once for all that look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

from gristmill.images.decode import MAX_PIXELS, Header, decode, read, read_header
from gristmill.images.errors import BadImage
from gristmill.lazy import Array, np
from gristmill.tasks import BadRecord, DocumentBatch
from gristmill.tasks.document import ID
from gristmill.tasks.image import IMAGE

Made = TypeVar("Made")

SHORT_SIDE = 256
"""What filters and hashes look at: an image reduced by a whole number, its short side at least this if it has that."""
KEPT_BYTES = 128 << 20
"""Decoded pixels of one batch that are kept. Those of further images are decoded again each time they are used."""


class Pictures:
    """Headers and reduced pixels of the images of a batch, in their order. All of them can be read.

        batch, pictures = Pictures.of(batch)

    It is kept in the cache of the batch, so the stages of one step share it.
    """

    def __init__(self, headers: Sequence[Header], data: Sequence[memoryview], max_pixels: int = MAX_PIXELS) -> None:
        self.headers = list(headers)
        self._data = list(data)
        self._max_pixels = max_pixels
        self._pixels: dict[int, Array] = {}
        self._kept = 0
        self._is_decoded = False
        self._measured: dict[Callable[[Array], float], Array] = {}

    @classmethod
    def of(
        cls, batch: DocumentBatch, field: str = IMAGE, pixels: bool = True, max_pixels: int = MAX_PIXELS
    ) -> tuple[DocumentBatch, Pictures]:
        """Return the batch without the images that cannot be read, which are reported as bad, and its pictures.

        ``pixels=False`` reads the headers only.
        """
        key = cache_key(field)
        found: Pictures | None = batch.cache.get(key)
        if found is None:
            return cls._read(batch, field, pixels, max_pixels)
        reasons = found._too_large(max_pixels) or (found.decode() if pixels else {})
        if reasons:
            batch = without_bad(batch, reasons)
            return cls.of(batch, field, pixels, max_pixels)
        return batch, found

    @classmethod
    def remember(
        cls, batch: DocumentBatch, headers: Sequence[Header], field: str = IMAGE, max_pixels: int = MAX_PIXELS
    ) -> None:
        """Keep headers that a reader has read, one for each image of the batch, for the stages of its step."""
        data = [one for one in encoded(batch, field) if one is not None]
        if len(data) != len(headers):
            raise ValueError(f"{len(headers)} headers for {len(data)} images: each image has one.")
        batch.cache[cache_key(field)] = cls(headers, data, max_pixels)

    @classmethod
    def _read(cls, batch: DocumentBatch, field: str, pixels: bool, max_pixels: int) -> tuple[DocumentBatch, Pictures]:
        made = cls([], [], max_pixels)

        def add(data: memoryview) -> None:
            if pixels:
                header, decoded = read(data, SHORT_SIDE, max_pixels)
                made._keep(len(made), decoded)
            else:
                header = read_header(data, max_pixels)
            made.headers.append(header)
            made._data.append(data)

        batch, _ = each_readable(batch, add, field)
        made._is_decoded = pixels
        batch.cache[cache_key(field)] = made
        return batch, made

    def __len__(self) -> int:
        return len(self.headers)

    def select(self, mask: Array) -> Pictures:
        """Return the pictures for which ``mask`` is true."""
        rows = np.flatnonzero(mask).tolist()
        made = Pictures([self.headers[row] for row in rows], [self._data[row] for row in rows], self._max_pixels)
        for place, row in enumerate(rows):
            if row in self._pixels:
                made._keep(place, self._pixels[row])
        made._is_decoded = self._is_decoded
        made._measured = {measure: values[mask] for measure, values in self._measured.items()}
        return made

    def decode(self) -> Mapping[int, str]:
        """Decode all pictures that are not yet, and return the numbers of those that cannot be, with reasons."""
        reasons: dict[int, str] = {}
        if not self._is_decoded:
            for number in range(len(self)):
                try:
                    self._keep(number, self._decoded(number))
                except BadImage as error:
                    reasons[number] = str(error)
            self._is_decoded = True
        return reasons

    @property
    def sizes(self) -> Array:
        """The encoded bytes of each picture."""
        return np.array([len(data) for data in self._data], dtype=np.int64)

    @property
    def pixels(self) -> Sequence[Array]:
        """RGB of each picture, (height, width, 3), reduced to a short side of 256 to 511 if it had more."""
        assert self._is_decoded, "Pictures.of(batch, pixels=False) decodes nothing"
        return _Pixels(self._decoded, len(self))

    def measured(self, measure: Callable[[Array], float]) -> Array:
        """Return a number for the pixels of each picture. It is computed once for all that ask for it."""
        if measure not in self._measured:
            self._measured[measure] = np.fromiter(map(measure, self.pixels), dtype=np.float64, count=len(self))
        return self._measured[measure]

    def _too_large(self, max_pixels: int) -> dict[int, str]:
        if max_pixels >= self._max_pixels:
            return {}
        return {row: "too many pixels" for row, one in enumerate(self.headers) if one.width * one.height > max_pixels}

    def _keep(self, number: int, pixels: Array) -> None:
        if number not in self._pixels and self._kept + pixels.nbytes <= KEPT_BYTES:
            self._pixels[number] = pixels
            self._kept += pixels.nbytes

    def _decoded(self, number: int) -> Array:
        found = self._pixels.get(number)
        return decode(self._data[number], SHORT_SIDE, self._max_pixels) if found is None else found


class _Pixels(Sequence[Array]):
    """The pixels of pictures. Those that are not kept are decoded when they are asked for."""

    def __init__(self, decoded: Callable[[int], Array], count: int) -> None:
        self._decoded = decoded
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> Array: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Array]: ...

    def __getitem__(self, number: int | slice) -> Array | Sequence[Array]:
        numbers = range(self._count)[number]
        return self._decoded(numbers) if isinstance(numbers, int) else [self._decoded(one) for one in numbers]

    def __iter__(self) -> Iterator[Array]:
        return map(self._decoded, range(self._count))


def cache_key(field: str) -> str:
    """Return the name of the pictures of a column in the cache of a batch. It is cleared when the column is set."""
    return f"{field}.pictures"


def encoded(batch: DocumentBatch, field: str = IMAGE) -> list[memoryview | None]:
    """The encoded bytes of each image, without a copy; None where there is no image."""
    import pyarrow as pa

    from gristmill.tasks.arrow import one_array

    if field not in batch.data.column_names:
        raise KeyError(f"there is no column {field!r}. Columns: {', '.join(batch.columns)}.")
    column: Any = one_array(batch.data.column(field))
    kind = column.type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_null(kind)):
        raise TypeError(f"column {field!r} holds {kind}, not encoded images: name the column of the images.")
    return [memoryview(value.as_buffer()) if value.is_valid else None for value in column]


def each_readable(
    batch: DocumentBatch, make: Callable[[memoryview], Made], field: str = IMAGE
) -> tuple[DocumentBatch, list[Made]]:
    """Return the batch without the images for which ``make`` raises `BadImage`, and what it makes of each other one."""
    made: list[Made] = []
    reasons: dict[int, str] = {}
    for row, data in enumerate(encoded(batch, field)):
        try:
            if data is None:
                raise BadImage("no image")
            made.append(make(data))
        except BadImage as error:
            reasons[row] = str(error)
    return (without_bad(batch, reasons) if reasons else batch), made


def without_bad(batch: DocumentBatch, reasons: Mapping[int, str]) -> DocumentBatch:
    """Return the batch without some images. They are reported as records that could not be read, with their reasons."""
    mask = np.ones(batch.num_items, dtype=bool)
    mask[list(reasons)] = False
    idents = batch.data.column(ID).to_pylist() if batch.has_ids else [""] * batch.num_items
    kept = batch.select(mask)
    for row, reason in sorted(reasons.items()):
        file, _, position = str(idents[row]).rpartition("#")
        kept.account.bad.append(BadRecord(file, int(position) if position.isdigit() else 0, reason))
    return kept
