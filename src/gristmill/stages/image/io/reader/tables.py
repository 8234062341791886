"""Rows of Parquet files and manifests: which columns are what, and rows as images."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gristmill import fast_json
from gristmill.errors import PlanError
from gristmill.images.decode import Header, read_header
from gristmill.images.errors import BadImage
from gristmill.secrets import public_url, without_query
from gristmill.stages.image.io.reader.building import NO_IMAGE, as_images, first_of, free_name
from gristmill.stages.image.io.reader.fetching import TooLarge, Unread, fetched
from gristmill.stages.image.io.reader.options import MOST_BYTES, MOST_IMAGES, ImageOptions
from gristmill.stages.image.io.reader.shards import TOO_LARGE
from gristmill.stages.text.io.compression import Damaged, decompressed
from gristmill.stages.text.io.json_columns import plain_strings
from gristmill.stages.text.io.listing import File
from gristmill.stages.text.io.reader.files import opened
from gristmill.storage import local_path
from gristmill.tasks import Account, BadRecord, DocumentBatch, ImageBatch
from gristmill.tasks.arrow import mask_array, one_array
from gristmill.tasks.document import HIDDEN, ID
from gristmill.tasks.image import CAPTION, IMAGE, IMAGE_ID

IMAGE_NAMES = (IMAGE, "image_bytes", "img", "bytes", "jpg", "jpeg", "png", "webp", "content", "data")
PATH_NAMES = (
    *("image_path", "path", "file_name", "filename", "filepath", "file_path", "image_file", "file", IMAGE, "img"),
    *("image_url", "url", "URL", "uri"),
)
CAPTION_NAMES = (CAPTION, "text", "TEXT", "alt_text", "alt", "description")
ID_NAMES = (IMAGE_ID, "key", "__key__", "id", "uid")
BYTES, TEXT, OTHER = "bytes", "text", "other"
"""The kinds of columns: of encoded bytes, of text, and all others."""
LINKED_IMAGES = 128
"""Images of a batch whose bytes are in other files. Batches must be the same when a file fails in one attempt."""
LINKED_BYTES = 256 << 20
"""A batch of such images that has so many bytes already ends early."""
PROTOCOLS = ("http", "https", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf")
"""What a table may name; other storages of fsspec run programs or write files."""
HEAD_BYTES = 1 << 20
"""How much of a manifest shows its fields."""
REFUSED = "an address that is not read"
LOCAL_IN_REMOTE = "a file of this machine in a table from elsewhere"


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table that images are made of."""

    image: str | None
    """Of encoded bytes; or of structs of them and a path, as the datasets of Hugging Face have them."""
    path: str | None
    caption: str | None
    ident: str | None

    @property
    def is_linked(self) -> bool:
        """Whether the bytes are in other files."""
        return self.image is None


def columns_of(fields: Mapping[str, str], options: ImageOptions, reader: str, file: str) -> TableColumns:
    """Choose the columns among the fields of a table, each with its kind. Raise `PlanError` if there is none."""
    for argument, name in (("image_field", options.image_field), ("path_field", options.path_field)):
        if name is not None and name not in fields:
            raise PlanError(f"{reader!r}: {file} has no field {name!r} for {argument}; it has: {_shown(fields)}.")
    image = options.image_field
    if image is None and options.path_field is None:
        image = next((name for name in IMAGE_NAMES if fields.get(name) == BYTES), None)
    path = options.path_field
    if path is None and image is None:
        path = next((name for name in PATH_NAMES if fields.get(name) == TEXT), None)
    if image is None and path is None:
        raise PlanError(
            f"{reader!r}: {file} has no field of images, paths or URLs that is known; it has: {_shown(fields)}.\n"
            "    Set image_field=... for encoded bytes, or path_field=... for paths or URLs."
        )
    caption = options.caption_field
    if caption is None:
        caption = next((name for name in CAPTION_NAMES if fields.get(name) == TEXT and name != path), None)
    ident = next((name for name in ID_NAMES if name in fields), None)
    return TableColumns(image, path, caption, ident)


def _shown(fields: Mapping[str, str]) -> str:
    return ", ".join(sorted(fields)[:20]) or "no fields"


def kinds_in(schema: pa.Schema) -> dict[str, str]:
    """The kind of each column."""
    return {field.name: _kind(field.type) for field in schema}


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_struct(kind):
        return BYTES if kind.get_field_index("bytes") >= 0 else OTHER
    name = str(kind)
    if "binary" in name:
        return BYTES
    return TEXT if "string" in name else OTHER


def detected(
    files: Sequence[File], is_parquet: bool, options: ImageOptions, storage: Mapping[str, Any], reader: str
) -> TableColumns:
    """Choose the columns by the first file that has some. A file that makes no sense has none."""
    fields: Mapping[str, str] = {}
    for file in files:
        fields = fields_of(file, is_parquet, storage)
        if fields:
            return columns_of(fields, options, reader, file.path)
    given = (options.image_field, options.path_field or PATH_NAMES[0])
    return TableColumns(given[0], given[1], options.caption_field or CAPTION, IMAGE_ID)


def fields_of(file: File, is_parquet: bool, storage: Mapping[str, Any]) -> Mapping[str, str]:
    """The kinds of the fields of a table, by its footer or its first lines. Empty if it makes no sense."""
    return _fields_of_parquet(file, storage) if is_parquet else _fields_of_lines(file, storage)


def _fields_of_parquet(file: File, storage: Mapping[str, Any]) -> Mapping[str, str]:
    from gristmill.stages.text.io.reader.row_groups import footer_of

    footer = footer_of(file.location, storage)
    return {} if footer is None else kinds_in(footer.schema)


def _fields_of_lines(file: File, storage: Mapping[str, Any]) -> Mapping[str, str]:
    """The kinds of the fields of the first lines of a manifest."""
    head = b""
    with opened(file.location, storage, True) as stream:
        try:
            for piece in decompressed(stream):
                head += piece
                if len(head) >= HEAD_BYTES:
                    break
        except Damaged:  # reported when it is read
            pass
    found: dict[str, str] = {}
    for line in head.removeprefix(b"\xef\xbb\xbf").splitlines():
        try:
            record = fast_json.loads(line)
        except fast_json.JSONDecodeError:
            continue
        for name, value in record.items() if isinstance(record, dict) else ():
            if isinstance(value, str):
                found[name] = TEXT
            else:
                found.setdefault(name, OTHER)
    return found


class TableImages:
    """Turns rows of tables into images."""

    def __init__(self, columns: TableColumns, options: ImageOptions, storage: Mapping[str, Any]) -> None:
        self.columns = columns
        self.options = options
        self._storage = storage

    def batches(self, rows: DocumentBatch, path: str, location: str) -> Iterator[ImageBatch]:
        """Yield the images of some rows of a file, one batch at least; ``location`` is the file with its secrets."""
        account = rows.take_account() or Account()
        left = rows.num_items
        for batch in self._parts(rows.data, location):
            there = batch.num_items + len(batch.account.bad)
            left -= there
            account.bad += batch.account.bad
            account.read[path] -= left  # those are counted with the batches that hold them
            batch.account, account = account, Account(read=Counter({path: left}))
            yield batch

    def _parts(self, table: pa.Table, location: str) -> Iterator[ImageBatch]:
        step = LINKED_IMAGES if self.columns.is_linked else MOST_IMAGES
        for start in range(0, max(table.num_rows, 1), step):
            part = table.slice(start, step)
            if self.columns.is_linked:
                yield from self._linked(part, location)
            else:
                yield self._made(part, self._embedded(part, location))

    def _linked(self, part: pa.Table, location: str) -> Iterator[ImageBatch]:
        """The images that a part of a table names, in one batch unless they are very large."""
        assert self.columns.path is not None
        images: list[Any] = []
        size = begin = 0
        for found in self._fetched(texts_of(part, self.columns.path), location):
            images.append(found)
            size += len(found) if isinstance(found, bytes) else 0
            if size >= LINKED_BYTES:
                yield self._made(part.slice(begin, len(images)), images)
                begin, images, size = begin + len(images), [], 0
        if images or not begin:
            yield self._made(part.slice(begin), images)

    def _fetched(self, names: Sequence[str | None], location: str) -> Iterator[bytes | BadImage | Unread | TooLarge]:
        """The images with these paths or URLs in a table."""
        places = [place_of(name, location) for name in names]
        files = fetched([place for place in places if isinstance(place, str)], self._storage)
        for place in places:
            yield next(files) if isinstance(place, str) else place

    def _embedded(self, part: pa.Table, location: str) -> list[Any]:
        """The encoded bytes that are in a table, without a copy."""
        assert self.columns.image is not None
        if self.columns.image not in part.column_names:
            return [None] * part.num_rows
        column = one_array(part.column(self.columns.image))
        names: list[str | None] = [None] * part.num_rows
        if pa.types.is_struct(column.type):
            if column.type.get_field_index("path") >= 0:
                names = column.field("path").to_pylist()
            # flatten() takes nulls of the struct into account
            column = column.flatten()[column.type.get_field_index("bytes")]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        images: list[Any] = [memoryview(value.as_buffer()) if value.is_valid else None for value in column]
        linked = [row for row, image in enumerate(images) if image is None and names[row]]
        for row, found in zip(linked, self._fetched([names[row] for row in linked], location), strict=True):
            images[row] = found
        return images

    def _made(self, part: pa.Table, images: Sequence[Any]) -> ImageBatch:
        """A batch of the rows whose images can be read. Others are bad records."""
        headers: list[Header] = []
        keep = np.zeros(part.num_rows, dtype=bool)
        bad: list[BadRecord] = []
        for row, image in enumerate(images):
            try:
                headers.append(self._header(image))
                keep[row] = True
            except (BadImage, Unread) as error:
                file, _, position = part.column(ID)[row].as_py().rpartition("#")
                may_pass = isinstance(error, Unread) and error.may_pass
                bad.append(BadRecord(file, int(position), str(error), is_failure=may_pass))
        if not keep.all():
            part = part.filter(mask_array(keep))
            images = [image for image, there in zip(images, keep.tolist(), strict=True) if there]
        batch = as_images(DocumentBatch(data=self._table(part, images)), headers, self.options.max_pixels)
        batch.account.bad += bad
        return batch

    def _header(self, image: Any) -> Header:
        if image is None:
            raise BadImage(NO_IMAGE)
        if isinstance(image, TooLarge) or (not isinstance(image, Exception) and len(image) > MOST_BYTES):
            raise BadImage(TOO_LARGE)
        if isinstance(image, Exception):
            raise image
        return read_header(image, self.options.max_pixels)

    def _table(self, part: pa.Table, images: Sequence[Any]) -> pa.Table:
        text = pa.large_string()
        captions = [None] * part.num_rows if self.columns.caption is None else texts_of(part, self.columns.caption)
        if self.options.first_line:
            captions = [None if caption is None else first_of(caption) for caption in captions]
        made = [
            (pa.field(IMAGE, pa.large_binary()), pa.array(images, pa.large_binary())),
            (pa.field(IMAGE_ID, text), pa.array(self._names(part), text)),
            (pa.field(CAPTION, text), pa.array(captions, text)),
        ]
        used = (self.columns.image, self.columns.caption, IMAGE_ID if self.columns.ident == IMAGE_ID else None)
        names = [name for name in part.column_names if name not in HIDDEN and name not in used]
        if self.options.fields is not None:
            names = [name for name in self.options.fields if name in names]
        for name in names:
            column = part.schema.field(name).with_name(free_name(name, names))
            made.append((column, part.column(name)))
        made.append((pa.field(ID, text), part.column(ID)))
        return pa.Table.from_arrays([array for _, array in made], schema=pa.schema([column for column, _ in made]))

    def _names(self, part: pa.Table) -> list[str | None]:
        """The user's names: of the column of ids, or else the paths, or else the places in the file."""
        places = [posixpath.basename(ident) for ident in part.column(ID).to_pylist()]
        names = texts_of(part, self.columns.ident) if self.columns.ident is not None else [None] * part.num_rows
        paths = texts_of(part, self.columns.path) if self.columns.path is not None else [None] * part.num_rows
        shown = (None if path is None else public_url(path) for path in paths)
        return [name or path or place for name, path, place in zip(names, shown, places, strict=True)]


def texts_of(part: pa.Table, name: str) -> list[str | None]:
    """A column as texts; nulls if it is missing."""
    if name not in part.column_names:
        return [None] * part.num_rows
    values = plain_strings(part, name).to_pylist()
    return [value if value is None or isinstance(value, str) else str(value) for value in values]


def place_of(name: str | None, location: str) -> str | BadImage:
    """Where an image is that a table names: a URL, or a path relative to the folder of the table."""
    if not name:
        return BadImage(NO_IMAGE)
    if "\0" in name:
        return BadImage(REFUSED)
    is_remote = local_path(location) is None
    if "://" in name:
        protocol, _, rest = name.partition("://")
        if protocol.lower() in ("file", "local"):
            return BadImage(LOCAL_IN_REMOTE) if is_remote else rest
        return name if protocol.lower() in PROTOCOLS and "::" not in name else BadImage(REFUSED)
    if is_remote:
        if name.startswith("/"):
            return BadImage(LOCAL_IN_REMOTE)
        folder = posixpath.dirname(without_query(location))
        if not {".", ".."} & set(name.split("/")):
            return f"{folder}/{name}"
        protocol, _, inner = folder.partition("://")  # object storages do not resolve ".."
        host, _, inner = inner.partition("/")
        return f"{protocol}://{host}{posixpath.normpath(f'/{inner}/{name}')}"
    return posixpath.join(posixpath.dirname(local_path(location) or ""), name)
