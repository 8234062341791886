"""Parquet files, by row groups."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from gristmill.errors import PlanError
from gristmill.stages.registry import builtin
from gristmill.stages.text.io.blocks import UNPACKED, pack
from gristmill.stages.text.io.listing import PARQUET, File
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.stages.text.io.reader.sample import FOOTERS, Some
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange

if TYPE_CHECKING:
    from gristmill.stages.text.io.reader.row_groups import RowGroups

SMALL_PART = 4
"""A file that is smaller than this part of a block, compressed, is not looked into before the run."""
LARGE = 2
"""A row group of more than so many blocks is read in several batches."""
FOOTERS_AT_ONCE = 16


@builtin
class ParquetReader(FileReader):
    """Documents from Parquet files, all columns with their types.

    ``file_paths``, ``files_per_partition``, ``blocksize``, ``read_kwargs``, ``limit`` and ``sample`` are as for
    `JsonlReader`; blocks are
    made of whole row groups by their size in memory, and a row group that is much larger than ``blocksize`` is read
    in parts. ``fields`` are the only columns that are read. A row whose text is null is a bad record, and so is a row
    group that cannot be read.
    """

    loads = ("gristmill.stages.text.io.reader.row_groups",)
    extensions = PARQUET
    _has_large = False
    """Whether there is a row group that becomes several batches."""

    def preload(self) -> None:
        import pyarrow.parquet  # noqa: F401  # slow to import, and shared by all workers

    def process(self, task: FileBlock | FileGroupTask) -> DocumentBatch | Iterator[DocumentBatch]:
        ranges = self._ranges(task)
        batches = self._rows(ranges[0].batch_bytes if ranges else 0).batches(ranges)
        first = next(batches)
        second = next(batches, None)
        return first if second is None else itertools.chain((first, second), batches)

    def _rows(self, batch_bytes: int = 0) -> RowGroups:
        from gristmill.stages.text.io.reader.row_groups import RowGroups

        columns, required = self.fields, self.columns
        if required is not None:
            needed = [*required, *([self.text_field] if self.text_field else [])]
            columns = [name for name in dict.fromkeys(needed) if self.fields is None or name in self.fields]
            required = [name for name in required if name not in self.if_there]
        else:
            required = [name for name in self.required if self.fields is None or name in self.fields]
        return RowGroups(
            self.options,
            self.text_field,
            columns,
            required,
            batch_bytes or self.block_bytes,
            LARGE,
            self._choice,
            self._note_read,
        )

    def _first_fields(self, part: FileRange) -> dict[str, set[str]]:
        from gristmill.stages.text.io.reader.row_groups import duplicated, is_text, paths_in, schema_of

        try:
            schema = schema_of(part.location, self.options)
        except OSError:  # it is said when the file is read
            return {}
        if schema is None:
            return {}
        if twice := [name for name in duplicated(schema) if name == self.text_field or self.fields is None]:
            raise PlanError(
                f"{self.name!r}: {part.path} has several columns with the name {twice[0]!r}.\n"
                "    rename them, or leave them out: fields=[...] names the columns that are read."
            )
        kind = schema.field(self.text_field).type if self.text_field in schema.names else None
        if kind is not None and str(kind) != "null" and not is_text(kind):
            raise PlanError(
                f"{self.name!r}: the column {self.text_field!r} of {part.path} is of type {kind}, not text.\n"
                "    Set text_field=... if the text is in another column, or text_field=None if there is none."
            )
        return {field.name: set(paths_in(field.type, field.name)) for field in schema}

    def _groups(self, files: list[File], block_bytes: int | None = None) -> list[list[FileRange]]:
        if self.files_per_partition:
            return self._by_count(files)
        limit = block_bytes or self._block_bytes_for(files)
        parts: list[list[FileRange]] = []
        sizes: list[int] = []
        self._has_large = False
        for file, inside in zip(files, self._inside(files, limit), strict=True):
            if inside is None:
                parts.append([self.range_of(file, limit=file.limit, batch_bytes=limit)])
                sizes.append(limit + 1 if file.size is None else file.size * SMALL_PART)
                continue
            self._has_large |= max(inside) > limit * LARGE
            groups = [[FileRange(file.path, i, i + 1)] for i in range(len(inside))]
            ranges = [(group[0].start, group[-1].stop) for group in pack(groups, inside, limit)]
            for start, stop, most in self._limits(file, ranges):
                parts.append([self.range_of(file, start, stop, most, limit)])
                sizes.append(sum(inside[start:stop]))
        return parts if self.blocksize is None else pack(parts, sizes, limit)

    def _first_of(self, file: File, limit: int) -> tuple[int, File]:
        taken = sum(self._rows_taken(file))
        return (limit, replace(file, limit=limit)) if taken >= limit else (taken, file)

    def _rows_taken(self, file: File) -> list[int]:
        """How many rows of each row group are documents to read; one that stands for all of a file that is damaged."""
        import numpy as np

        from gristmill.stages.text.io.reader.row_groups import row_group_rows

        rows = row_group_rows(file.location, self.options, file.stamp)
        if rows is None or self.sample is None:
            return [1] if rows is None else rows
        choice = self._choice(self.range_of(file))
        edges = np.concatenate([[0], np.cumsum(rows)])
        return [int(choice.take(np.arange(a, b))[0].sum()) for a, b in pairwise(edges.tolist())]

    def _limits(self, file: File, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
        """The ranges of row groups that hold the first rows of a file, each with its limit."""
        if file.limit < 0:
            yield from ((start, stop, -1) for start, stop in ranges)
            return
        left, rows = file.limit, self._rows_taken(file)
        for start, stop in ranges:
            if left:
                there = sum(rows[start:stop])
                yield start, stop, -1 if there < left else left
                left -= min(there, left)

    def _estimated_bytes(self, file: File) -> int:
        return (file.size or 0) * UNPACKED

    def _some(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> list[Some]:
        from gristmill.stages.text.io.reader.row_groups import row_count

        middle = parts[len(parts) // 2]
        first = FileRange(middle.path, middle.start, middle.start + 1, middle.limit, url=middle.url)
        few = copy.copy(self)
        few.blocksize = size // LARGE

        def times(batch: DocumentBatch) -> float:
            locations = {part.path: part.location for part in parts}
            paths = list(locations)
            some = paths[:: -(-len(paths) // FOOTERS)]
            with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
                rows = sum(pool.map(lambda path: row_count(locations[path], self.options), some))
            whole = rows * sum(sizes[path] for path in paths) / max(1, sum(sizes[path] for path in some))
            return whole / max(1, batch.num_items)

        return [Some(lambda: next(few._rows().batches([first])), times)]

    def _inside(self, files: list[File], limit: int) -> list[list[int] | None]:
        """The sizes of the row groups of each file; None where they do not matter or cannot be told."""
        from gristmill.stages.text.io.reader.row_groups import row_group_sizes

        def look(file: File) -> list[int] | None:
            if file.size is None or file.size * SMALL_PART <= limit:
                return None
            return row_group_sizes(file.location, self.options) or None

        with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:  # a request for each file, on a storage far away
            return list(pool.map(look, files))

    def _gives_several(self, block: FileBlock) -> bool:
        return self.files_per_partition is not None or self._has_large
