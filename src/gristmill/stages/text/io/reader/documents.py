"""Files of all known formats together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Any, Self

from gristmill.stages.core import Result
from gristmill.stages.protocols import Stages
from gristmill.stages.registry import builtin
from gristmill.stages.text.io.formats import FORMATS, JSONL, all_extensions, format_of
from gristmill.stages.text.io.listing import File
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.stages.text.io.reader.sample import InputSample
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange


@builtin
class DocumentReader(FileReader):
    """Documents from JSONL and Parquet files, in one stream in the order of the sorted paths.

    Files that end in .parquet or .pq are read as `ParquetReader` does, all others as `JsonlReader` does; the arguments
    are the same. Fields of documents may differ between files.
    """

    loads = tuple(module for one in FORMATS.values() for module in one.reader.loads)
    extensions = all_extensions()
    _several = False
    """Whether a block becomes more than one batch."""

    @cached_property
    def _readers(self) -> dict[str, FileReader]:
        """The reader of each format, by the name of the format."""
        storage = {"storage_options": self.options}
        sizes = (self.files_per_partition, self.blocksize)
        given = (None, *sizes, self.fields, storage, self.text_field, self.limit, self.sample)
        return {one.name: one.reader(*given) for one in FORMATS.values()}

    def _reader_of(self, path: str) -> FileReader:
        return self._readers[format_of(path).name]

    def report_reading_to(self, note: Callable[[int], None]) -> None:
        for reader in self._readers.values():
            reader.report_reading_to(note)

    def preload(self) -> None:
        for reader in self._readers.values():
            reader.preload()

    def process(self, task: FileBlock | FileGroupTask) -> Result:
        paths = task.data if isinstance(task, FileGroupTask) else [part.path for part in task.data]
        formats = {format_of(path).name for path in paths}
        if len(formats) > 1:
            return self._mixed(task)
        result: Any = self._readers[formats.pop() if formats else JSONL.name].process(task)
        read: Result = result
        return read

    def _mixed(self, task: FileBlock | FileGroupTask) -> Iterator[DocumentBatch]:
        for _, run in groupby(task.data, lambda part: format_of(part if isinstance(part, str) else part.path)):
            part = copy.copy(task)
            part.data = list(run)  # type: ignore[assignment]  # of the same kind as those of the whole
            read: Any = self.process(part)
            yield from [read] if isinstance(read, DocumentBatch) else read

    def _by_reader(self, files: Sequence[File]) -> Iterator[tuple[FileReader, list[File]]]:
        """The files in order, those in a row that are of one format together."""
        for one, run in groupby(files, lambda file: format_of(file.path)):
            yield self._readers[one.name], list(run)

    def parts(self, files: Sequence[File], block_bytes: int) -> Iterator[tuple[FileRange, int]]:
        for reader, run in self._by_reader(files):
            yield from reader.parts(run, block_bytes)

    def groups(self, files: Sequence[File], block_bytes: int | None = None) -> list[list[FileRange]]:
        size = block_bytes or self._block_bytes_for(files)
        found: list[list[FileRange]] = []
        self._several = False
        for reader, run in self._by_reader(files):
            groups = reader.groups(run, size)
            self._several |= any(reader.makes_several_batches(FileBlock(group)) for group in groups)
            found += groups
        return found

    def makes_several_batches(self, block: FileBlock) -> bool:
        return self._several

    def reading_for(self, after: Stages) -> Self:
        clone = super().reading_for(after)
        clone._readers = {name: reader.reading_for(after) for name, reader in self._readers.items()}
        return clone

    def linked(self, before: Stages, after: Stages) -> Self:
        clone = super().linked(before, after)
        for reader in clone._readers.values():
            reader.wanted = replace(reader.wanted, if_empty=clone.wanted.if_empty)
        return clone

    def first_fields(self, part: FileRange) -> dict[str, set[str]]:
        return self._reader_of(part.path).first_fields(part)

    def up_to_limit(self, file: File, limit: int) -> tuple[int, File]:
        return self._reader_of(file.path).up_to_limit(file, limit)

    def estimated_bytes(self, file: File) -> int:
        return self._reader_of(file.path).estimated_bytes(file)

    def samples_of(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> list[InputSample]:
        found: list[InputSample] = []
        for reader in self._readers.values():
            if near := [part for part in parts if self._reader_of(part.path) is reader]:
                whole = copy.copy(reader)
                whole.sample = None
                found += whole.samples_of(near, sizes, size)
        return found

    def bytes_at_once(self, blocks: Sequence[FileBlock]) -> tuple[int, int]:
        of_lines = [block for block in blocks if format_of(block.data[0].path) is JSONL]
        return self._readers[JSONL.name].bytes_at_once(of_lines)
