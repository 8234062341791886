"""WebDataset shards."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gristmill.images.formats import format_of
from gristmill.images.shards import Shard, key_of, padded
from gristmill.lazy import np
from gristmill.sizes import parse_size
from gristmill.stages.protocols import Sink
from gristmill.stages.registry import builtin
from gristmill.stages.text.io.writer.base import FileWriter
from gristmill.stages.text.io.writer.parquet import ParquetWriter
from gristmill.storage import local_path
from gristmill.tasks import DocumentBatch, FileGroupTask, Written
from gristmill.tasks.document import HIDDEN, ID
from gristmill.tasks.image import CAPTION, IMAGE, IMAGE_ID
from gristmill.tasks.names import part_name

if TYPE_CHECKING:
    import pyarrow as pa

MAX_SHARD_BYTES = 256 << 20
_LEAST_BYTES = 4096


@builtin
class ImageWriter(FileWriter):
    """Images as WebDataset shards, in the folder ``path``: tar files named by the task.

    Each image is a sample with the members ``<key>.<format>`` (its bytes as they are, with the extension of their real
    format), ``<key>.txt`` (the caption, if it has one) and ``<key>.json`` (``image_id`` and all other columns). A
    column of vectors, lists of float32 or float16 as embedding stages make them, is ``<key>.<column>.npy``. The key is
    made of the image id and a hash of its place in the input, so it is unique in the whole output.

    A shard has at most ``images_per_tar`` images and ``max_shard_bytes`` bytes, and holds images of one batch only. A
    larger image has a shard of its own. With ``fields`` only these columns are written beside ``image`` and
    ``image_id``. ``excluded`` says whether images that are dropped are written beside the output, as Parquet files with
    all columns, or which fraction of them. ``scores`` is as for `JsonlWriter`; ``write_kwargs`` may hold
    "storage_options".
    """

    loads = ("gristmill.stages.text.io.writer.lines", "pyarrow.parquet")
    extension = ".tar"

    def __init__(
        self,
        path: str | os.PathLike[str],
        images_per_tar: int = 1000,
        max_shard_bytes: int | str = MAX_SHARD_BYTES,
        fields: Sequence[str] | None = None,
        excluded: bool | float = True,
        write_kwargs: dict[str, Any] | None = None,
        scores: bool = True,
    ) -> None:
        self._set_arguments(path, fields, excluded, scores, write_kwargs, ())
        self.images_per_tar = images_per_tar
        try:
            self.max_shard_bytes = parse_size(max_shard_bytes)
        except ValueError as error:
            raise ValueError(f"max_shard_bytes: {error}.") from None
        if isinstance(images_per_tar, bool) or not isinstance(images_per_tar, int) or images_per_tar < 1:
            raise ValueError(f"images_per_tar must be a number of 1 or more, not {images_per_tar!r}.")
        if self.max_shard_bytes < _LEAST_BYTES:
            raise ValueError(f"max_shard_bytes must be {_LEAST_BYTES} or more, not {max_shard_bytes!r}.")

    def preload(self) -> None:
        from gristmill.kernels import json_lines
        from gristmill.kernels.compile import preload

        preload([json_lines.GATHER, json_lines.ESCAPED_SIZE, json_lines.ESCAPE])
        self.excluded_writer.preload()
        if local_path(self.path) is None:
            import fsspec.core  # noqa: F401  # slow to import, and shared by all workers

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [IMAGE]

    def looks_at(self) -> list[str]:
        return [IMAGE_ID]

    def columns_needed(self) -> list[str] | None:
        return None if self.fields is None else list(dict.fromkeys([IMAGE, IMAGE_ID, *self.fields]))

    @cached_property
    def excluded_writer(self) -> Sink[Any, Any]:
        """Dropped images are rows of Parquet: in a tar file nothing could be looked up by reason without reading it."""
        return ParquetWriter(self.path, write_kwargs={"storage_options": self.storage_options})

    def process(self, task: DocumentBatch) -> FileGroupTask:
        from gristmill.images.pictures import without_bad

        reasons = {row: reason for row, data in enumerate(_bytes_of(task)) if (reason := _problem(data))}
        written = FileGroupTask(dataset_name=task.dataset_name)
        if reasons:
            task = without_bad(task, reasons)
            written.account.bad += task.account.bad
        waiting: Shard | None = None
        number = 0
        for shard in self._shards(task):
            if waiting is not None:
                self._write(written, f"{task.task_id}.{number}", waiting)
                number += 1
            waiting = shard
        if waiting is not None:
            self._write(written, f"{task.task_id}.{number}" if number else task.task_id, waiting)
        return written

    def _write(self, written: FileGroupTask, task_id: str, shard: Shard) -> None:
        name = part_name(task_id, self.extension)
        content = shard.content()
        checksum = self.folder.write(name, content)
        written.data.append(self.folder.full_path(name))
        written.account.written.append(Written(name, shard.samples, len(content), checksum))

    def _shards(self, task: DocumentBatch) -> Iterator[Shard]:
        """Yield the shards of a batch, each as soon as the next image does not fit into it."""
        shard = Shard()
        for members in samples_of(task, self.fields):
            size = sum(padded(len(data)) for _, data in members)
            if shard.samples and (shard.samples >= self.images_per_tar or shard.size + size > self.max_shard_bytes):
                yield shard
                shard = Shard()
            shard.add(members)
        if shard.samples:
            yield shard

    def render(self, table: pa.Table, extra: Sequence[str] = ()) -> bytes:
        """Return a shard with all images of a table: the limits apply to the files that `process` writes."""
        shard = Shard()
        for members in samples_of(DocumentBatch(table), self._written(extra)):
            shard.add(members)
        return shard.content()


def samples_of(batch: DocumentBatch, fields: Sequence[str] | None) -> Iterator[list[tuple[str, Any]]]:
    """Yield the members of each image of a batch: names and content, in the order of rows."""
    from gristmill.tasks.arrow import one_array

    table = batch.to_pyarrow()
    chosen = [
        name
        for name in table.column_names
        if name not in (*HIDDEN, IMAGE, IMAGE_ID, CAPTION) and (fields is None or name in fields)
    ]
    vectors = [name for name in chosen if is_vector(table.schema.field(name).type)]
    lines = json_of(table, [name for name in (IMAGE_ID, *chosen) if name in table.column_names and name not in vectors])
    captions: Any = [None] * table.num_rows
    if CAPTION in table.column_names and (fields is None or CAPTION in fields):
        captions = table.column(CAPTION).to_pylist()
    columns = [(name, one_array(table.column(name))) for name in vectors]
    for row, (key, data) in enumerate(zip(_keys(batch), _bytes_of(batch), strict=True)):
        kind = format_of(data) if data is not None else None
        members: list[tuple[str, Any]] = [
            (f"{key}.{kind.extension if kind else 'bin'}", data if data is not None else b"")
        ]
        if captions[row] is not None:
            members.append((f"{key}.txt", str(captions[row]).encode("utf-8", "surrogatepass")))
        members.append((f"{key}.json", lines[row]))
        for name, column in columns:
            if column[row].is_valid:
                members.append((f"{key}.{_member_name(name)}.npy", npy_of(column[row])))
        yield members


def json_of(table: pa.Table, names: Sequence[str]) -> list[bytes]:
    """Return the columns of each row as a JSON object."""
    from gristmill.stages.text.io.writer.lines import made

    if not table.num_rows:
        return []
    lines = made(table.select(names))
    data = lines.data.tobytes()
    return [data[start:end] for start, end in zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)]


def _keys(batch: DocumentBatch) -> Iterator[str]:
    """Yield the keys of images. They do not depend on the folder of the input: a copy of it gives the same keys.

    An image that would have the key of another one of the batch gets a number.
    """
    table = batch.to_pyarrow()
    rows = table.num_rows
    names = table.column(IMAGE_ID).to_pylist() if IMAGE_ID in table.column_names else [None] * rows
    places = table.column(ID).to_pylist() if batch.has_ids else map(str, range(rows))
    seen: Counter[str] = Counter()
    for name, place in zip(names, places, strict=True):
        key = key_of("" if name is None else str(name), f"{batch.task_id}/{str(place).rpartition('/')[2]}")
        seen[key] += 1
        yield key if seen[key] == 1 else f"{key}-{seen[key]}"


def _bytes_of(batch: DocumentBatch) -> Sequence[memoryview | None]:
    from gristmill.images.pictures import encoded

    return encoded(batch)


def _problem(data: memoryview | None) -> str:
    """Why these bytes are no image that can be written; empty if they are one."""
    if data is None:
        return "no image"
    if not len(data):
        return "empty"
    return "" if format_of(data) else "not an image of a known format"


def is_vector(kind: pa.DataType) -> bool:
    """Return whether a type is that of embeddings: lists of float32 or float16."""
    import pyarrow as pa

    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and (pa.types.is_float32(kind.value_type) or pa.types.is_float16(kind.value_type))


def _member_name(column: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in column)[:24]


def npy_of(value: Any) -> bytes:
    """Return a vector as the content of a file of NumPy."""
    content = io.BytesIO()
    np.save(content, value.values.to_numpy(zero_copy_only=False), allow_pickle=False)
    return content.getvalue()
