"""JSONL and Parquet files together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Any, Self

from gristmill.secrets import without_query
from gristmill.stages.protocols import Stages
from gristmill.stages.registry import builtin
from gristmill.stages.text.io.listing import JSONL, PARQUET, File
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.stages.text.io.reader.jsonl import JsonlReader
from gristmill.stages.text.io.reader.parquet import ParquetReader
from gristmill.stages.text.io.reader.sample import InputSample
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange


@builtin
class DocumentReader(FileReader):
    """Documents from JSONL and Parquet files, in one stream in the order of the sorted paths.

    Files that end in .parquet or .pq are read as `ParquetReader` does, all others as `JsonlReader` does; the arguments
    are the same. Fields of documents may differ between files.
    """

    loads = (*JsonlReader.loads, *ParquetReader.loads)
    extensions = (*JSONL, *PARQUET)
    _several = False
    """Whether a block becomes more than one batch."""

    @cached_property
    def _jsonl(self) -> JsonlReader:
        return JsonlReader(*self._arguments_of_both())

    @cached_property
    def _parquet(self) -> ParquetReader:
        return ParquetReader(*self._arguments_of_both())

    def _arguments_of_both(self) -> tuple[Any, ...]:
        storage = {"storage_options": self.options}
        sizes = (self.files_per_partition, self.blocksize)
        return None, *sizes, self.fields, storage, self.text_field, self.limit, self.sample

    def _of(self, path: str) -> JsonlReader | ParquetReader:
        """The reader for a file."""
        return self._parquet if without_query(path).lower().endswith(PARQUET) else self._jsonl

    def report_reading_to(self, note: Callable[[int], None]) -> None:
        self._jsonl.report_reading_to(note)
        self._parquet.report_reading_to(note)

    def preload(self) -> None:
        self._jsonl.preload()
        self._parquet.preload()

    def process(self, task: FileBlock | FileGroupTask) -> DocumentBatch | Iterator[DocumentBatch]:
        paths = task.data if isinstance(task, FileGroupTask) else [part.path for part in task.data]
        readers = {id(reader): reader for reader in map(self._of, paths)}
        if len(readers) <= 1:
            return next(iter(readers.values()), self._jsonl).process(task)
        return self._mixed(task)

    def _mixed(self, task: FileBlock | FileGroupTask) -> Iterator[DocumentBatch]:
        for _, group in groupby(task.data, lambda part: id(self._of(part if isinstance(part, str) else part.path))):
            part = copy.copy(task)
            part.data = list(group)  # type: ignore[assignment]  # of the same kind as those of the whole
            read: Any = self.process(part)
            yield from [read] if isinstance(read, DocumentBatch) else read

    def _groups(self, files: list[File], block_bytes: int | None = None) -> list[list[FileRange]]:
        size = block_bytes or self._block_bytes_for(files)
        found: list[list[FileRange]] = []
        self._several = False
        for _, run in groupby(files, lambda file: id(self._of(file.path))):
            some = list(run)
            reader = self._of(some[0].path)
            groups = reader._groups(some, size)
            self._several |= any(reader._makes_several_batches(FileBlock(group)) for group in groups)
            found += groups
        return found

    def _makes_several_batches(self, block: FileBlock) -> bool:
        return self._several

    def reading_for(self, after: Stages) -> Self:
        clone = super().reading_for(after)
        clone._jsonl, clone._parquet = self._jsonl.reading_for(after), self._parquet.reading_for(after)
        return clone

    def linked(self, before: Stages, after: Stages) -> Self:
        clone = super().linked(before, after)
        clone._jsonl.wanted = replace(clone._jsonl.wanted, if_empty=clone.wanted.if_empty)
        return clone

    def _first_fields(self, part: FileRange) -> dict[str, set[str]]:
        return self._of(part.path)._first_fields(part)

    def _limited_file(self, file: File, limit: int) -> tuple[int, File]:
        return self._of(file.path)._limited_file(file, limit)

    def _estimated_bytes(self, file: File) -> int:
        return self._of(file.path)._estimated_bytes(file)

    def _samples(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> list[InputSample]:
        found: list[InputSample] = []
        for reader in (self._jsonl, self._parquet):
            if near := [part for part in parts if self._of(part.path) is reader]:
                whole = copy.copy(reader)
                whole.sample = None
                found += whole._samples(near, sizes, size)
        return found

    def bytes_at_once(self, blocks: Sequence[FileBlock]) -> tuple[int, int]:
        return self._jsonl.bytes_at_once([block for block in blocks if self._of(block.data[0].path) is self._jsonl])
