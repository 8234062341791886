"""JSON objects, one per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, cast

from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import register
from gristmill.stages.text.io.blocks import cut, pack
from gristmill.stages.text.io.compression import BY_NAME
from gristmill.stages.text.io.listing import File
from gristmill.stages.text.io.reader import sample
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange

ASKED_AT_ONCE = 16
STREAM_TIMES = 4
"""Of compressed files more is looked at: how much of one that was is known in steps."""
_PLAIN = (".jsonl", ".ndjson", ".json")


@register
class JsonlReader(FileReader):
    """Documents from JSONL files, plain or compressed (gzip, zstd, bz2, xz).

    ``file_paths`` is a file, a folder, a glob, a URL or a list of these. Plain files are cut into blocks of
    ``blocksize`` (a number of bytes, or a text like "256MB"), which also puts smaller files together; without it
    blocks are of 16 MiB and hold one file at most. ``files_per_partition`` puts so many whole files into one block
    instead. Compressed files are read as streams, a block at a time.

    ``fields`` are the only ones that are kept of each line; their values stay as they are, byte for byte. The text
    must be a string: a line without is a bad record, as one that is no JSON object. ``text_field=None`` takes lines
    without a text too. ``read_kwargs={"storage_options": {...}}`` is for the storage.
    """

    loads = ("gristmill.stages.text.io.reader.records", "gristmill.stages.text.io.reader.lines", "llvmlite.binding")
    extensions = tuple(plain + end for plain in _PLAIN for end in ("", *BY_NAME))

    def preload(self) -> None:
        from gristmill.kernels import json_lines, json_strings
        from gristmill.kernels.compile import preload
        from gristmill.stages.text.io.reader.records import Records, Wanted

        preload([json_lines.LINE_FEEDS, json_lines.SCAN, json_lines.GATHER, json_strings.UNESCAPE])
        records = Records(Wanted())
        records.add("", b'{"text": "a\\n"}\n', 0)
        records.batch()

    def process(self, task: FileBlock | FileGroupTask) -> DocumentBatch | Iterator[DocumentBatch]:
        from gristmill.stages.text.io.reader.files import RangeFile, is_compressed
        from gristmill.stages.text.io.reader.lines import add_range

        ranges = self._ranges(task)
        # blocks that `_groups` has left whole are streams; those that the user has made so are one batch
        whole = isinstance(task, FileBlock) and not self.files_per_partition
        streams = [part.stop < 0 and (whole or is_compressed(part.path, self.options)) for part in ranges]
        if any(streams):
            return self._stream(ranges, streams)
        records = self._records()
        for part in ranges:
            with RangeFile(part.path, self.options) as file:
                add_range(records, file, part)
        return records.batch(known=getattr(task, "documents", None))

    def _stream(self, ranges: list[FileRange], streams: list[bool]) -> Iterator[DocumentBatch]:
        from gristmill.stages.text.io.compression import decompressed
        from gristmill.stages.text.io.reader.files import RangeFile, opened
        from gristmill.stages.text.io.reader.lines import add_range, add_stream

        records = self._records()
        given = False
        for part, is_stream in zip(ranges, streams, strict=True):
            if not is_stream:
                with RangeFile(part.path, self.options) as plain:
                    add_range(records, plain, part)
                continue
            with opened(part.path, self.options, in_order=True) as file:
                for _ in add_stream(records, part.path, decompressed(file), self.block_bytes):
                    yield records.batch()
                    given = True
        if not given or not records.is_empty:
            yield records.batch()

    def _taken(self, stage: ProcessingStage[Any, Any]) -> list[str] | None:
        return [] if getattr(stage, "splices_lines", False) else super()._taken(stage)

    def _records(self) -> Any:
        from gristmill.stages.text.io.reader.records import Records, Wanted

        return Records(Wanted(self.text_field, self.columns, self.fields, self.if_there, self.required))

    def _first_fields(self, part: FileRange) -> set[str]:
        from gristmill.stages.text.io.reader.files import RangeFile, is_compressed

        if part.stop < 0 or is_compressed(part.path, self.options):
            return set()
        try:
            with RangeFile(part.path, self.options) as file:
                head = bytes(file.read(0, min(part.stop, sample.BYTES)))
        except OSError:  # it is said when the file is read
            return set()
        return sample.fields_of(head)

    def _some(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> sample.Some:
        from gristmill.stages.text.io.reader.files import is_compressed

        paths = dict.fromkeys(part.path for part in parts)
        whole = sum(sizes[path] for path in paths)
        middle = parts[len(parts) // 2]
        if is_compressed(middle.path, self.options):
            return self._some_of_stream(middle, whole, size * STREAM_TIMES)
        stop = sizes[middle.path] if middle.stop < 0 else middle.stop
        near = FileRange(middle.path, middle.start, min(stop, middle.start + size))

        def read() -> DocumentBatch:
            found = self.process(FileBlock([near], task_id="0"))
            assert isinstance(found, DocumentBatch)
            return found

        return sample.Some(read, lambda _: whole / max(1, near.stop - near.start))

    def _some_of_stream(self, part: FileRange, whole: int, size: int) -> sample.Some:
        from gristmill.stages.text.io.compression import decompressed
        from gristmill.stages.text.io.reader.files import opened
        from gristmill.stages.text.io.reader.lines import add_stream

        taken = 0

        def some(file: sample.Counted) -> Iterator[bytes]:
            left = size
            for piece in decompressed(cast(BinaryIO, file)):
                yield piece
                left -= len(piece)
                if left <= 0:
                    break

        def read() -> DocumentBatch:
            nonlocal taken
            records = self._records()
            with opened(part.path, self.options) as file:
                counted = sample.Counted(file)
                for _ in add_stream(records, part.path, some(counted), 2 * size):
                    pass
                taken = counted.taken
            batch: DocumentBatch = records.batch()
            return batch

        return sample.Some(read, lambda _: whole / max(1, taken))

    def _groups(self, files: list[File]) -> list[list[FileRange]]:
        if self.files_per_partition:
            return self._by_count(files)
        parts: list[list[FileRange]] = []
        sizes: list[int] = []
        limit = self.block_bytes
        for file, is_whole in zip(files, self._are_whole(files), strict=True):
            if is_whole or file.size is None:
                parts.append([FileRange(file.path)])
                sizes.append(limit + 1)  # never with others: what is in it is not known
                continue
            for start, stop in cut(file.size, limit):
                parts.append([FileRange(file.path, start, stop)])
                sizes.append(stop - start)
        return parts if self.blocksize is None else pack(parts, sizes, limit)

    def _are_whole(self, files: list[File]) -> list[bool]:
        """Which files cannot be cut into blocks."""
        from gristmill.stages.text.io.reader.files import is_compressed, serves_ranges

        def look(file: File) -> bool:
            if file.size is None or is_compressed(file.path, self.options):
                return True
            return file.size > self.block_bytes and not serves_ranges(file.path, self.options)

        if all("://" not in file.path for file in files):
            return [look(file) for file in files]
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:  # a request for each large file on the web
            return list(pool.map(look, files))

    def _gives_several(self, block: FileBlock) -> bool:
        if self.files_per_partition:
            from gristmill.stages.text.io.reader.files import is_compressed

            return any(is_compressed(part.path, self.options) for part in block.data)
        return any(part.stop < 0 for part in block.data)
