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
from gristmill.stages.text.io.formats import PARQUET
from gristmill.stages.text.io.listing import File
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.stages.text.io.reader.sample import FOOTERS, InputSample
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange

if TYPE_CHECKING:
    from gristmill.stages.text.io.reader.row_groups import RowGroups

SMALL_PART = 4
"""A file that is smaller than this part of a block, compressed, is not looked into before the run."""
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
    extensions = PARQUET.all_extensions
    _has_large = False
    """Whether a row group becomes several batches."""

    def preload(self) -> None:
        import pyarrow.parquet  # noqa: F401  # slow to import, and shared by all workers

    def process(self, task: FileBlock | FileGroupTask) -> DocumentBatch | Iterator[DocumentBatch]:
        ranges = self._ranges(task)
        batches = self._row_groups(ranges[0].batch_bytes if ranges else 0).batches(ranges)
        first = next(batches)
        second = next(batches, None)
        return first if second is None else itertools.chain((first, second), batches)

    def _row_groups(self, batch_bytes: int = 0) -> RowGroups:
        from gristmill.stages.text.io.reader.row_groups import RowGroups

        return RowGroups(self.wanted, self.options, batch_bytes or self.block_bytes, self._choice, self._note_read)

    def first_fields(self, part: FileRange) -> dict[str, set[str]]:
        from gristmill.stages.text.io.reader.row_groups import duplicated, footer_of, is_text, paths_in

        try:
            footer = footer_of(part.location, self.options)
        except OSError:  # reported when the file is read
            return {}
        if footer is None:
            return {}
        schema = footer.schema
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

    def parts(self, files: Sequence[File], block_bytes: int) -> Iterator[tuple[FileRange, int]]:
        from gristmill.stages.text.io.reader.row_groups import LARGE

        self._has_large = False
        for file, inside in zip(files, self._sizes_inside(files, block_bytes), strict=True):
            if inside is None:
                size = block_bytes + 1 if file.size is None else file.size * SMALL_PART
                yield self.range_of(file, limit=file.limit, batch_bytes=block_bytes), size
                continue
            self._has_large |= max(inside) > block_bytes * LARGE
            groups = [[FileRange(file.path, i, i + 1)] for i in range(len(inside))]
            ranges = [(group[0].start, group[-1].stop) for group in pack(groups, inside, block_bytes)]
            for start, stop, most in self._limits(file, ranges):
                yield self.range_of(file, start, stop, most, block_bytes), sum(inside[start:stop])

    def up_to_limit(self, file: File, limit: int) -> tuple[int, File]:
        taken = sum(self._rows_taken(file))
        return (limit, replace(file, limit=limit)) if taken >= limit else (taken, file)

    def _rows_taken(self, file: File) -> list[int]:
        """The number of rows of each row group that are read; a damaged file counts as one row."""
        import numpy as np

        from gristmill.stages.text.io.reader.row_groups import footer_of

        footer = footer_of(file.location, self.options, file.stamp)
        if footer is None or self.sample is None:
            return [1] if footer is None else footer.rows
        choice = self._choice(self.range_of(file))
        edges = np.concatenate([[0], np.cumsum(footer.rows)])
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

    def estimated_bytes(self, file: File) -> int:
        return (file.size or 0) * UNPACKED

    def samples_of(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> list[InputSample]:
        from gristmill.stages.text.io.reader.row_groups import LARGE, footer_of

        middle = parts[len(parts) // 2]
        first = FileRange(middle.path, middle.start, middle.start + 1, middle.limit, url=middle.url)
        few = copy.copy(self)
        few.blocksize = size // LARGE
        locations = {part.path: part.location for part in parts}

        def rows_of(path: str) -> int:
            footer = footer_of(locations[path], self.options)
            return 0 if footer is None else sum(footer.rows)

        def scale(batch: DocumentBatch) -> float:
            paths = list(locations)
            some = paths[:: -(-len(paths) // FOOTERS)]
            with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:
                rows = sum(pool.map(rows_of, some))
            whole = rows * sum(sizes[path] for path in paths) / max(1, sum(sizes[path] for path in some))
            return whole / max(1, batch.num_items)

        return [InputSample(lambda: next(few._row_groups().batches([first])), scale)]

    def _sizes_inside(self, files: Sequence[File], limit: int) -> list[list[int] | None]:
        """The sizes of the row groups of each file; None where they do not matter or are not known."""
        from gristmill.stages.text.io.reader.row_groups import footer_of

        def sizes(file: File) -> list[int] | None:
            small = file.size is None or file.size * SMALL_PART <= limit
            footer = None if small else footer_of(file.location, self.options)
            return footer.sizes or None if footer is not None else None

        with ThreadPoolExecutor(FOOTERS_AT_ONCE) as pool:  # a request for each file, on a storage far away
            return list(pool.map(sizes, files))

    def makes_several_batches(self, block: FileBlock) -> bool:
        return self.files_per_partition is not None or self._has_large
