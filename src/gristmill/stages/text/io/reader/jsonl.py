"""JSON objects, one per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.stages.text.io.blocks import cut, cut_evenly
from gristmill.stages.text.io.formats import JSONL
from gristmill.stages.text.io.listing import File
from gristmill.stages.text.io.reader.base import DEFAULT_HELD_BYTES, FileReader
from gristmill.stages.text.io.reader.sample import BYTES, CountingFile, InputSample, fields_of
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange

if TYPE_CHECKING:
    from gristmill.stages.text.io.reader.records import Records

ASKED_AT_ONCE = 16
STREAM_TIMES = 4
"""More is read of compressed files: the bytes that were read of one are known in steps."""
PLACES = 2
"""Files, or parts of them, that are sampled before the start, of each kind."""
CENSUS_BYTES = 1 << 20
"""How much of a file is read at a time when documents are counted for ``limit``."""


@builtin
class JsonlReader(FileReader):
    """Documents from JSONL files, plain or compressed (gzip, zstd, bz2, xz).

    ``file_paths`` is a file, a folder, a glob, a URL or a list of these. Plain files are cut into blocks of
    ``blocksize`` (a number of bytes, or a text like "256MB"), which also puts smaller files together; without it
    blocks hold one file at most and are of 16 MiB, or down to 1 MiB for an input below 256 MiB.
    ``files_per_partition`` puts so many whole files into one block instead. Compressed files are read as streams, a
    block at a time.

    ``sample=0.01`` reads about 1 % of the documents, always the same ones. ``limit`` reads the first so many documents
    in the order of the sorted paths, or the first so many of the sample.

    ``fields`` are the only ones that are kept of each line; their values stay as they are, byte for byte. The text
    must be a string: a line without is a bad record, as one that is no JSON object. ``text_field=None`` takes lines
    without a text too. ``read_kwargs={"storage_options": {...}}`` is for the storage.
    """

    loads = ("gristmill.stages.text.io.reader.records", "gristmill.stages.text.io.reader.lines", "llvmlite.binding")
    extensions = JSONL.all_extensions

    def preload(self) -> None:
        from gristmill.kernels import json_lines
        from gristmill.kernels.compile import preload
        from gristmill.stages.text.io.reader.columns import Wanted
        from gristmill.stages.text.io.reader.records import Records

        preload([json_lines.LINE_FEEDS, json_lines.SCAN, json_lines.GATHER, json_lines.UNESCAPE])
        records = Records(Wanted())
        records.add("", b'{"text": "a\\n"}\n', 0)
        records.batch()

    def process(self, task: FileBlock | FileGroupTask) -> DocumentBatch | Iterator[DocumentBatch]:
        from gristmill.stages.text.io.reader.files import RangeFile, is_compressed
        from gristmill.stages.text.io.reader.lines import add_range

        ranges = self._ranges(task)
        # whole files are streams, unless the user asked for whole files per block
        whole = isinstance(task, FileBlock) and not self.files_per_partition
        streams = [part.stop < 0 and (whole or is_compressed(part.path, self.options)) for part in ranges]
        if any(streams):
            return self._stream(ranges, streams)
        records = self._records()
        for (location, stamp), parts in groupby(ranges, key=lambda part: (part.location, part.stamp)):
            with RangeFile(location, self.options, stamp) as file:
                for part in parts:
                    records.choice = self._choice(part)
                    add_range(records, file, part)
        return records.batch(known=task.documents if isinstance(task, FileBlock) else None)

    def _stream(self, ranges: list[FileRange], streams: list[bool]) -> Iterator[DocumentBatch]:
        from gristmill.stages.text.io.compression import decompressed
        from gristmill.stages.text.io.reader.files import RangeFile, opened
        from gristmill.stages.text.io.reader.lines import add_range, add_stream

        records = self._records()
        given = False
        for part, is_stream in zip(ranges, streams, strict=True):
            records.choice = self._choice(part)
            if not is_stream:
                with RangeFile(part.location, self.options, part.stamp) as plain:
                    add_range(records, plain, part)
                continue
            with opened(part.location, self.options, True, part.stamp) as file:
                counted = CountingFile(file)
                stream = decompressed(cast(BinaryIO, counted))
                for _ in add_stream(records, part.path, stream, part.batch_bytes or self.block_bytes):
                    records.account.bytes_read += counted.take()
                    yield records.batch()
                    given = True
                records.account.bytes_read += counted.take()
        if not given or not records.is_empty:
            yield records.batch()

    def needed_by(self, stage: ProcessingStage[Any, Any]) -> list[str] | None:
        return [] if stage.splices_lines else stage.columns_needed()

    def _records(self) -> Records:
        from gristmill.stages.text.io.reader.records import Records

        return Records(self.wanted, self._note_read)

    def first_fields(self, part: FileRange) -> dict[str, set[str]]:
        from gristmill.stages.text.io.reader.files import RangeFile, is_compressed

        if part.stop < 0 or is_compressed(part.path, self.options):
            return {}
        try:
            with RangeFile(part.location, self.options) as file:
                head = bytes(file.read(0, min(part.stop, BYTES)))
        except OSError:  # reported when the file is read
            return {}
        return fields_of(head)

    def bytes_at_once(self, blocks: Sequence[FileBlock]) -> tuple[int, int]:
        plain = max((sum(max(0, part.stop - part.start) for part in block.data) for block in blocks), default=0)
        streams = (part for block in blocks for part in block.data if part.stop < 0)
        return plain, max((part.batch_bytes or DEFAULT_HELD_BYTES for part in streams), default=0)

    def samples_of(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> list[InputSample]:
        from gristmill.stages.text.io.compression import by_name
        from gristmill.stages.text.io.reader.files import is_compressed

        # a file that is read in parts is plain: it need not be opened
        whole = {part.path: part.location for part in parts if part.stop < 0}
        packed = {part.path: False for part in parts}
        packed |= {
            path: bool(by_name(path)) or is_compressed(location, self.options) for path, location in whole.items()
        }
        found = []
        for kind, sample_of in ((False, self._sample_of_plain), (True, self._sample_of_streams)):
            if near := [part for part in parts if packed[part.path] is kind]:
                found.append(sample_of(near, sizes, sum(sizes[path] for path in packed if packed[path] is kind), size))
        return found

    def _sample_of_plain(
        self, parts: Sequence[FileRange], sizes: Mapping[str, int], whole: int, size: int
    ) -> InputSample:
        near = []
        for part in _spread(parts):
            stop = sizes[part.path] if part.stop < 0 else part.stop
            near.append(FileRange(part.path, part.start, min(stop, part.start + size // PLACES), url=part.url))

        def read() -> DocumentBatch:
            found = self.process(FileBlock(near, task_id="0"))
            assert isinstance(found, DocumentBatch)
            return found

        return InputSample(read, lambda _: whole / max(1, sum(part.stop - part.start for part in near)))

    def _sample_of_streams(
        self, parts: Sequence[FileRange], sizes: Mapping[str, int], whole: int, size: int
    ) -> InputSample:
        from gristmill.stages.text.io.compression import decompressed
        from gristmill.stages.text.io.reader.files import opened
        from gristmill.stages.text.io.reader.lines import add_stream

        taken = 0
        each = size * STREAM_TIMES // PLACES

        def beginning(file: CountingFile) -> Iterator[bytes]:
            """The decompressed beginning of a file, as far as all bytes that were read are used."""
            nonlocal taken
            before, left = taken, each
            for piece in decompressed(cast(BinaryIO, file)):
                if left <= 0 and before + file.taken > taken:
                    return
                taken = before + file.taken
                left -= len(piece)
                yield piece

        def read() -> DocumentBatch:
            nonlocal taken
            taken = 0
            records = self._records()
            for part in _spread(parts):
                records.choice = self._choice(part)
                with opened(part.location, self.options) as file:
                    for _ in add_stream(records, part.path, beginning(CountingFile(file)), 8 * each):
                        pass
            return records.batch()

        return InputSample(read, lambda _: whole / max(1, taken))

    def parts(self, files: Sequence[File], block_bytes: int) -> Iterator[tuple[FileRange, int]]:
        for file, is_whole in zip(files, self._are_whole(files, block_bytes), strict=True):
            if is_whole or file.size is None:
                # never in a block with others: the size of its content is not known
                yield self.range_of(file, limit=file.limit, batch_bytes=block_bytes), block_bytes + 1
                continue
            # a file of a small input is cut evenly, so that none leaves a tiny rest
            for start, stop in (cut_evenly if block_bytes < self.block_bytes else cut)(file.size, block_bytes):
                yield self.range_of(file, start, stop), stop - start

    def up_to_limit(self, file: File, limit: int) -> tuple[int, File]:
        from gristmill.stages.text.io.compression import decompressed
        from gristmill.stages.text.io.reader.files import opened
        from gristmill.stages.text.io.reader.lines import add_stream
        from gristmill.stages.text.io.reader.records import RecordCounter

        counter = RecordCounter(self._choice(self.range_of(file, limit=limit)))
        with opened(file.location, self.options, True, file.stamp) as stream:
            for _ in add_stream(counter, file.path, decompressed(stream), CENSUS_BYTES):
                pass
        if not counter.choice.is_full:
            return counter.taken, file
        return counter.taken, replace(
            file, limit=limit, size=None if file.size is None else min(file.size, counter.stop)
        )

    def _are_whole(self, files: Sequence[File], limit: int) -> list[bool]:
        """Which files cannot be cut into blocks of ``limit`` bytes."""
        from gristmill.stages.text.io.reader.files import is_compressed, serves_ranges

        def is_whole(file: File) -> bool:
            if file.size is None or is_compressed(file.path, self.options):
                return True
            return (file.size > limit or file.limit >= 0) and not serves_ranges(file.location, self.options)

        if all("://" not in file.path for file in files):
            return [is_whole(file) for file in files]
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:  # a request for each large file on the web
            return list(pool.map(is_whole, files))

    def makes_several_batches(self, block: FileBlock) -> bool:
        if self.files_per_partition:
            from gristmill.stages.text.io.reader.files import is_compressed

            return any(is_compressed(part.path, self.options) for part in block.data)
        return any(part.stop < 0 for part in block.data)


def _spread(parts: Sequence[FileRange]) -> list[FileRange]:
    """Some of the parts, far from each other, in different files where there are several."""
    firsts = list({part.path: part for part in reversed(parts)}.values())[::-1]
    among = firsts if len(firsts) >= PLACES else parts
    places = min(PLACES, len(among))
    return [among[(2 * n + 1) * len(among) // (2 * places)] for n in range(places)]
