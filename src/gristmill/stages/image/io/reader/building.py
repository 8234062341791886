"""Images that are collected for a batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from gristmill import fast_json
from gristmill.images.decode import Header, read_header
from gristmill.images.errors import BadImage
from gristmill.images.pictures import Pictures
from gristmill.stages.image.io.reader.options import MOST_IMAGES, ImageOptions
from gristmill.stages.image.io.reader.space import BytesColumn
from gristmill.stages.text.io import json_columns
from gristmill.stages.text.io.raw_lines import Edges, keys_of, scan_valid
from gristmill.stages.text.io.reader.batches import SHOWN_BYTES, BatchBuilder
from gristmill.tasks import BadRecord, ImageBatch
from gristmill.tasks.document import HIDDEN, ID
from gristmill.tasks.image import CAPTION, IMAGE, IMAGE_ID

ORIGINAL = "original_"
"""Begins the name of a metadata field whose own name is that of a column of each image."""
RESERVED = (IMAGE, IMAGE_ID, CAPTION, *HIDDEN)
NOT_UTF8 = "the caption is not UTF-8"
NO_OBJECT = "the metadata is no JSON object"
NO_IMAGE = "no image"


@dataclass(slots=True)
class FoundImage:
    """An image with what was found of it."""

    source: str
    """What it is counted under."""
    path: str
    """The file in its id."""
    position: int
    name: str
    """The user's name of it."""
    image: bytes | memoryview | None
    """A memoryview is all that `ImageBuilder.space` returned last."""
    caption: bytes | None = None
    metadata: bytes | None = None
    """A JSON object."""
    texts: dict[str, bytes] = field(default_factory=dict)
    """More columns."""


def caption_of(data: bytes, first_line: bool) -> str:
    """A caption without the space around it. Raise `BadImage` if it is no text."""
    try:
        text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise BadImage(NOT_UTF8) from None
    return first_of(text) if first_line else text


def first_of(text: str) -> str:
    """The first line of a text."""
    return text.strip().partition("\n")[0].strip()


def object_of(data: bytes) -> tuple[bytes, dict[str, Any]]:
    """JSON in one line, and the object that it is. Raise `BadImage` if it is none."""
    line = data.removeprefix(b"\xef\xbb\xbf").strip().replace(b"\n", b" ").replace(b"\r", b" ")
    try:
        value = fast_json.loads(line)
    except fast_json.JSONDecodeError:
        raise BadImage(NO_OBJECT) from None
    if not isinstance(value, dict):
        raise BadImage(NO_OBJECT)
    return line, value


class ImageBuilder(BatchBuilder):
    """Collects images until there are enough for a batch. Those whose header makes no sense are bad records."""

    def __init__(self, options: ImageOptions, note_read: Callable[[int], None] | None = None) -> None:
        super().__init__(note_read)
        self.options = options
        self._expected = 0
        self._start()

    def _start(self) -> None:
        self._images = BytesColumn(self._expected)
        self._headers: list[Header] = []
        self._names: list[str] = []
        self._captions: list[str | None] = []
        self._lines: list[bytes] = []
        self._texts: list[dict[str, str]] = []
        self._ids: list[str] = []

    def expect(self, size: int) -> None:
        """Note how many bytes of images are likely to come for each batch. Call it before the first image."""
        assert not self._ids, "images were collected"
        self._expected = size
        self._start()

    def space(self, size: int) -> memoryview:
        """Return memory for the next image, which is read into it and then added."""
        return self._images.space(size)

    @property
    def size(self) -> int:
        """The encoded bytes that were collected."""
        return self._images.size

    @property
    def is_full(self) -> bool:
        """Whether a batch holds no more images, however small they are."""
        return len(self._ids) >= MOST_IMAGES

    @property
    def is_empty(self) -> bool:
        """Whether nothing was collected and nothing counted."""
        return not (self._ids or self.account.read or self.account.counters)

    def bad(self, source: str, path: str, position: int, reason: str, name: str = "") -> None:
        """Count an image, or a part of a file, that cannot be read. ``name`` is kept with it."""
        self.account.read[source] += 1
        raw = name.encode("utf-8", "backslashreplace")[:SHOWN_BYTES]
        self.account.bad.append(BadRecord(path, position, reason, raw))

    def add(self, found: FoundImage) -> None:
        try:
            self._add(found)
        except BadImage as error:
            self.bad(found.source, found.path, found.position, str(error), found.name)
        if not len(self._ids) % 64:
            self.report_progress()

    def _add(self, found: FoundImage) -> None:
        if found.image is None:
            raise BadImage(NO_IMAGE)
        header = read_header(found.image, self.options.max_pixels)
        caption = None if found.caption is None else caption_of(found.caption, self.options.first_line)
        line, value = (b"{}", {}) if found.metadata is None else object_of(found.metadata)
        if caption is None and isinstance(given := value.get(self.options.caption_field or CAPTION), str):
            caption = first_of(given) if self.options.first_line else given.strip()
        texts = {name: data.decode("utf-8", "replace").strip() for name, data in found.texts.items()}
        self.account.read[found.source] += 1
        if isinstance(found.image, bytes):
            self._images.append(found.image)
        else:
            self._images.append_space(len(found.image))
        self._headers.append(header)
        own_name = value.get(IMAGE_ID)  # of a shard that `ImageWriter` wrote, whose keys are not the names
        self._names.append(own_name if isinstance(own_name, str) and own_name else found.name)
        self._captions.append(caption)
        self._lines.append(line)
        self._texts.append(texts)
        self._ids.append(f"{found.path}#{found.position}")

    def batch(self) -> ImageBatch:
        """The images that were collected, with their account."""
        text = pa.large_string()
        made = [
            (pa.field(IMAGE, pa.large_binary()), self._images.array()),
            (pa.field(IMAGE_ID, text), pa.array(self._names, text)),
            (pa.field(CAPTION, text), pa.array(self._captions, text)),
        ]
        made += self._metadata()
        made += self._text_columns({column.name for column, _ in made})
        made.append((pa.field(ID, text), pa.array(self._ids, text)))
        table = pa.Table.from_arrays([array for _, array in made], schema=pa.schema([column for column, _ in made]))
        batch = as_images(self.batch_of(table), self._headers, self.options.max_pixels)
        self._start()
        return batch

    def _metadata(self) -> list[tuple[pa.Field, pa.Array]]:
        """The members of the JSON objects as columns."""
        lines = Edges.of_list(self._lines)
        wanted = self.options.fields
        there = [name for name in keys_of(lines) if name not in HIDDEN and (wanted is None or name in wanted)]
        names = there if wanted is None else [name for name in wanted if name in there]
        if not names:
            return []
        scanned = scan_valid(lines, names)
        made = []
        for number, name in enumerate(names):
            column, array = json_columns.column(scanned, number)
            if name == (self.options.caption_field or CAPTION) and self._is_caption(array):
                continue
            if name == IMAGE_ID and pa.types.is_large_string(array.type) and "" not in array.to_pylist():
                continue  # each is the name of its image
            made.append((column.with_name(free_name(name, names)), array))
        return made

    def _is_caption(self, array: pa.Array) -> bool:
        """Whether a column says no more than the captions do."""
        if not pa.types.is_large_string(array.type):
            return False
        shown = (
            None if text is None else first_of(text) if self.options.first_line else text.strip()
            for text in array.to_pylist()
        )
        return all(text is None or text == caption for text, caption in zip(shown, self._captions, strict=True))

    def _text_columns(self, taken: set[str]) -> list[tuple[pa.Field, pa.Array]]:
        names = list(dict.fromkeys(name for texts in self._texts for name in texts))
        if self.options.fields is not None:
            names = [name for name in self.options.fields if name in names]
        kind = pa.large_string()
        return [
            (pa.field(name, kind), pa.array([texts.get(name) for texts in self._texts], kind))
            for name in names
            if name not in taken
        ]


def free_name(name: str, taken: Collection[str]) -> str:
    """The name of a metadata field as a column: not that of a column of each image, nor that of another field."""
    if name in RESERVED:
        name = ORIGINAL + name
        while name in taken:
            name = ORIGINAL + name
    return name


def as_images(batch: Any, headers: Sequence[Header], max_pixels: int) -> ImageBatch:
    """The batch as one of images, whose headers are known."""
    images = ImageBatch(data=batch.data)
    images.account = batch.take_account()
    Pictures.remember(images, headers, max_pixels=max_pixels)
    return images
