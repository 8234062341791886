"""The kinds of input, each split into blocks and read: image files, shards, and tables."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from gristmill.stages.image.io.reader.options import (
    CAPTION_ENDINGS,
    METADATA_ENDING,
    MOST_IMAGES,
    TEXT_ENDINGS,
    ImageOptions,
)
from gristmill.stages.text.io.blocks import pack
from gristmill.stages.text.io.listing import File
from gristmill.stages.text.io.reader.sample import CountingFile
from gristmill.storage import local_path
from gristmill.tasks import DocumentBatch, FileBlock, FileRange, ImageBatch

if TYPE_CHECKING:
    from gristmill.stages.image.io.reader.building import FoundImage, ImageBuilder
    from gristmill.stages.image.io.reader.folders import ImageFolder
    from gristmill.stages.image.io.reader.shards import SampleMembers, ShardParts
    from gristmill.stages.image.io.reader.tables import TableColumns
    from gristmill.stages.image.io.reader.tar import TarStream
    from gristmill.stages.text.io.reader.base import FileReader

MANY_SHARDS = 64
"""So many shards are not split: there is work for all workers, and their headers need not be read before the run."""
PLANNED_AT_ONCE = 8


class ImageSource(ABC):
    """How one kind of input is split and read."""

    def __init__(self, reader: FileReader, options: ImageOptions) -> None:
        self.reader = reader
        self.options = options

    @abstractmethod
    def groups(self, files: Sequence[File], block_bytes: int) -> list[list[FileRange]]:
        """The ranges of each block."""

    @abstractmethod
    def makes_several_batches(self, part: FileRange) -> bool:
        """Whether a range may become several batches."""

    @abstractmethod
    def up_to_limit(self, file: File, limit: int) -> tuple[int, File]:
        """How many of the first ``limit`` images are in a file, and the file limited to those."""

    @abstractmethod
    def batches(self, ranges: Sequence[FileRange]) -> Iterator[ImageBatch]:
        """Yield the images of some ranges, one batch at least."""

    def _builder(self) -> ImageBuilder:
        from gristmill.stages.image.io.reader.building import ImageBuilder

        return ImageBuilder(self.options, self.reader._note_read)

    def _takes(self, part: FileRange, position: int) -> bool:
        """Whether an image is in the sample."""
        import numpy as np

        return bool(self.reader._choice(replace(part, limit=-1)).take(np.array([position]))[0][0])


class FolderSource(ImageSource):
    """Image files, planned and counted by folder."""

    def __init__(self, reader: FileReader, options: ImageOptions, folders: Sequence[ImageFolder]) -> None:
        super().__init__(reader, options)
        self.folders = {folder.path: folder for folder in folders}

    def groups(self, files: Sequence[File], block_bytes: int) -> list[list[FileRange]]:
        from gristmill.stages.image.io.reader.folders import FolderRange, folder_edges

        most = self.reader.files_per_partition or MOST_IMAGES
        if self.reader.files_per_partition:
            block_bytes = 1 << 62
        ranges: list[list[FileRange]] = []
        sizes = []
        for file in files:
            folder = self.folders[file.path]
            end = len(folder.images) if file.limit < 0 else file.limit
            for start, stop, size in folder_edges(folder, end, block_bytes, most):
                ranges.append([FolderRange(folder.path, start, stop, folder=folder)])
                # the larger of both shares of a block, so that it exceeds neither
                sizes.append(max(size, (stop - start) * block_bytes // most))
        return pack(ranges, sizes, block_bytes)

    def makes_several_batches(self, part: FileRange) -> bool:
        return False

    def _chosen(self, folder: ImageFolder, row: int) -> bool:
        from gristmill.stages.text.io.reader.choice import file_key

        part = FileRange(folder.path, key=file_key(folder.shown + folder.images.names[row]))
        return self.reader.sample is None or self._takes(part, 0)

    def up_to_limit(self, file: File, limit: int) -> tuple[int, File]:
        folder = self.folders[file.path]
        taken = 0
        for row in range(len(folder.images)):
            taken += self._chosen(folder, row)
            if taken == limit:
                return taken, replace(file, limit=row + 1)
        return taken, file

    def batches(self, ranges: Sequence[FileRange]) -> Iterator[ImageBatch]:
        from gristmill.stages.image.io.reader.folder_images import read_folder
        from gristmill.stages.image.io.reader.folders import FolderRange
        from gristmill.stages.text.io.reader.choice import NOT_SAMPLED

        builder = self._builder()
        parts = [part for part in ranges if isinstance(part, FolderRange)]
        builder.expect(sum(part.folder.bytes_of(part.start, part.stop) for part in parts))
        for part in parts:
            folder = part.folder
            rows = list(range(part.start - folder.first, part.stop - folder.first))
            chosen = [row for row in rows if self._chosen(folder, row)]
            if len(chosen) < len(rows):
                builder.account.counters[NOT_SAMPLED] += len(rows) - len(chosen)
            builder.account.read[folder.path] += 0
            read_folder(folder, chosen, self.reader.options, builder)
        yield builder.batch()


class ShardSource(ImageSource):
    """WebDataset shards: those on this machine are split between samples, others are read as streams."""

    def groups(self, files: Sequence[File], block_bytes: int) -> list[list[FileRange]]:
        many = len(files) >= MANY_SHARDS and self.reader.blocksize is None
        whole = many or self.reader.files_per_partition is not None
        with ThreadPoolExecutor(PLANNED_AT_ONCE) as pool:
            ranges = list(pool.map(lambda file: None if whole else self._cut(file, block_bytes), files))
        found: list[list[FileRange]] = []
        sizes: list[int] = []
        for file, inside in zip(files, ranges, strict=True):
            if inside is None:
                found.append([self.reader.range_of(file, limit=file.limit, batch_bytes=block_bytes)])
                sizes.append(block_bytes + 1)
                continue
            for start, stop, count in inside:
                found.append([self.reader.range_of(file, start, stop, batch_bytes=block_bytes)])
                sizes.append(max(stop - start, count * block_bytes // MOST_IMAGES))
        if step := self.reader.files_per_partition:
            return [[part for one in found[i : i + step] for part in one] for i in range(0, len(found), step)]
        return found if self.reader.blocksize is None else pack(found, sizes, block_bytes)

    def _cut(self, file: File, block_bytes: int) -> list[tuple[int, int, int]] | None:
        """The ranges of a shard, each with its number of images; None if it is a stream."""
        from gristmill.stages.image.io.reader.shards import cut_shard
        from gristmill.stages.image.io.reader.tar import FileStream, TarReader
        from gristmill.stages.text.io.reader.files import is_compressed, open_regular

        local = local_path(file.location)
        if local is None or file.size is None or is_compressed(file.path, self.reader.options):
            return None
        with open_regular(local) as opened:
            return cut_shard(TarReader(FileStream(opened)), file.size, block_bytes)

    def makes_several_batches(self, part: FileRange) -> bool:
        return part.stop < 0 or part.stop - part.start > 2 * part.batch_bytes

    def up_to_limit(self, file: File, limit: int) -> tuple[int, File]:
        import numpy as np

        from gristmill.stages.image.io.reader.shards import ShardReader
        from gristmill.stages.image.io.reader.tar import TarDamage, TarReader

        choice = self.reader._choice(self.reader.range_of(file, limit=limit))
        taken = 0
        with self._stream(self.reader.range_of(file)) as (stream, _):
            for found in ShardReader(TarReader(stream)):
                if choice.is_full:
                    size = None if file.size is None else min(file.size, found.offset)
                    return taken, replace(file, limit=limit, size=size)
                if isinstance(found, TarDamage):
                    choice.count_one()
                    taken += 1
                else:
                    taken += int(choice.take(np.array([found.offset]))[0][0])
        return taken, file

    @contextmanager
    def _stream(self, part: FileRange) -> Iterator[tuple[TarStream, Callable[[], int]]]:
        """The shard from the start of a range, and up to where its file has been read."""
        from gristmill.stages.image.io.reader.tar import FileStream, PieceStream
        from gristmill.stages.text.io.compression import decompressed
        from gristmill.stages.text.io.reader.files import is_compressed, opened

        is_plain = local_path(part.location) is not None and not is_compressed(part.path, self.reader.options)
        with opened(part.location, self.reader.options, True, part.stamp) as file:
            counted = CountingFile(file)
            if is_plain:
                plain = FileStream(cast(io.FileIO, file), part.start)
                yield plain, lambda: plain.position
            else:
                yield PieceStream(decompressed(cast(BinaryIO, counted))), lambda: counted.taken

    def batches(self, ranges: Sequence[FileRange]) -> Iterator[ImageBatch]:
        builder = self._builder()
        builder.expect(self._bytes_at_once(ranges))
        given = False
        for part in ranges:
            builder.account.read[part.path] += 0
            most = part.batch_bytes or self.reader.block_bytes
            several = self.makes_several_batches(part)
            with self._stream(part) as (stream, read_up_to):
                before = part.start
                for _ in self._add_shard(builder, part, stream):
                    if not several or (builder.size < most and not builder.is_full):
                        continue
                    builder.account.bytes_read += read_up_to() - before
                    before = read_up_to()
                    yield builder.batch()
                    given = True
                builder.account.bytes_read += read_up_to() - before
        if not given or not builder.is_empty:
            yield builder.batch()

    def _bytes_at_once(self, ranges: Sequence[FileRange]) -> int:
        """About the most bytes of images that come in one batch."""
        if any(map(self.makes_several_batches, ranges)):
            most = max(part.batch_bytes or self.reader.block_bytes for part in ranges)
            return most + most // 4  # the last image comes on top
        return sum(part.stop - part.start for part in ranges)

    def _add_shard(self, builder: ImageBuilder, part: FileRange, stream: TarStream) -> Iterator[None]:
        """Add the samples of a shard. Stops after each."""
        import numpy as np

        from gristmill.stages.image.io.reader.shards import NO_END, ShardReader
        from gristmill.stages.image.io.reader.tar import TarDamage, TarReader

        choice = self.reader._choice(part)

        def take(offset: int) -> bool:
            return choice.takes_all or bool(builder.take(choice, np.array([offset]))[0])

        tar = TarReader(stream)
        shard = ShardReader(tar, part.stop, self._parts(), take, builder.space)
        for found in shard:
            if isinstance(found, TarDamage):
                choice.count_one()
                builder.bad(part.path, part.path, found.offset, found.reason)
            elif found.problem:
                builder.bad(part.path, part.path, found.offset, found.problem, found.name)
            else:
                builder.add(self._image(part.path, found))
            yield
            if choice.is_full:
                break
        builder.account.counters.update(shard.counts)
        if tar.lacks_end:
            builder.account.counters[NO_END] += 1

    def _parts(self) -> ShardParts:
        from gristmill.stages.image.io.reader.shards import ShardParts

        images = self.options.image_field
        caption = (self.options.caption_field,) if self.options.caption_field else ()
        texts = (METADATA_ENDING, *CAPTION_ENDINGS, *TEXT_ENDINGS, *caption)
        return ShardParts(() if images is None else tuple(images.lower().split(";")), texts)

    def _image(self, path: str, sample: SampleMembers) -> FoundImage:
        """A sample as an image."""
        from gristmill.stages.image.io.reader.building import FoundImage

        texts = sample.texts
        wanted = self.options.caption_field
        ends = CAPTION_ENDINGS if wanted is None else (wanted,)
        caption = next((texts[end] for end in ends if end in texts), None)
        others = {end: texts[end] for end in TEXT_ENDINGS if end in texts and end not in ends}
        metadata = texts.get(METADATA_ENDING)
        return FoundImage(path, path, sample.offset, sample.name, sample.image, caption, metadata, others)


class TableSource(ImageSource):
    """Rows of Parquet files or manifests, which the readers of documents read."""

    def __init__(self, reader: FileReader, options: ImageOptions, rows: FileReader, columns: TableColumns) -> None:
        super().__init__(reader, options)
        self.rows = rows
        self.columns = columns

    def groups(self, files: Sequence[File], block_bytes: int) -> list[list[FileRange]]:
        return self.rows.groups(files, block_bytes)

    def makes_several_batches(self, part: FileRange) -> bool:
        return True

    def up_to_limit(self, file: File, limit: int) -> tuple[int, File]:
        return self.rows.up_to_limit(file, limit)

    def batches(self, ranges: Sequence[FileRange]) -> Iterator[ImageBatch]:
        from gristmill.stages.image.io.reader.tables import TableImages

        images = TableImages(self.columns, self.options, self.reader.options)
        for part in ranges:  # paths are relative to their file
            read: Any = self.rows.process(FileBlock([part], task_id="0"))
            for rows in [read] if isinstance(read, DocumentBatch) else read:
                yield from images.batches(rows, part.path, part.location)
