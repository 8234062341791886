"""Images from folders, shards, Parquet files and manifests."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Self

from gristmill.errors import PlanError
from gristmill.images.decode import MAX_PIXELS
from gristmill.stages.hints import TaskType
from gristmill.stages.image.io.reader.options import (
    BESIDE,
    EXTENSIONS,
    FILES,
    MANIFESTS,
    SHARDS,
    TABLES,
    ImageOptions,
    kind_of,
    one_kind,
)
from gristmill.stages.protocols import Paths, Stages
from gristmill.stages.registry import builtin
from gristmill.stages.text.io.listing import File, Listing, list_input
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.stages.text.io.reader.sample import InputSample
from gristmill.storage import plain_errors
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange, ImageBatch
from gristmill.tasks.image import CAPTION, IMAGE, IMAGE_ID

if TYPE_CHECKING:
    from gristmill.stages.image.io.reader.folders import ImageFolder
    from gristmill.stages.image.io.reader.sources import ImageSource
    from gristmill.stages.image.io.reader.tables import TableColumns

MANIFEST_BLOCK_BYTES = 64 << 10
"""The lines of a block of a manifest name a few hundred images."""
MOST_MANIFEST_BLOCKS = 100_000
MOST_CHANGED = 100
"""Changed files of folders that are listed."""


@builtin
@dataclass(eq=False, repr=False)
class ImageReader(FileReader):
    """Images from folders of image files, WebDataset shards, Parquet files, or JSONL manifests.

    ``file_paths`` is a file, a folder, a glob, a URL or a list of these. What they hold decides how they are read: if
    it is not of one kind, ``kind`` names what is read: "files", "shards", "parquet" or "manifest".

    ``image_field`` is the column of encoded bytes of Parquet files, or the ends of the names of images in shards, such
    as "jpg;png". ``path_field`` is the field of paths or URLs of a table; relative paths are below the folder of the
    table. ``caption_field`` is the field or the end of the name of captions. Without these, usual names are looked
    for. ``caption_lines="first"`` takes the first line of each caption. ``fields`` are the only metadata that are kept.

    An image with more than ``max_pixels`` pixels, and one whose header cannot be read, is a bad record. ``blocksize``,
    ``files_per_partition``, ``limit``, ``sample`` and ``read_kwargs`` are as for `JsonlReader`.
    """

    file_paths: Paths | None = None
    kind: str | None = None
    image_field: str | None = None
    path_field: str | None = None
    caption_field: str | None = None
    caption_lines: str = "all"
    fields: list[str] | None = None
    files_per_partition: int | None = None
    blocksize: Any = None
    """A number of bytes, or a text such as "256MB"."""
    limit: int | None = None
    sample: float | None = None
    max_pixels: int = MAX_PIXELS
    read_kwargs: dict[str, Any] | None = None

    loads = ("gristmill.stages.image.io.reader.building", "gristmill.stages.image.io.reader.sources", "PIL.Image")
    _folders: Sequence[ImageFolder] = ()
    _columns: TableColumns | None = None

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in EXTENSIONS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, EXTENSIONS))}, not {self.kind!r}.")
        if self.caption_lines not in ("all", "first"):
            raise ValueError(f'caption_lines must be "all" or "first", not {self.caption_lines!r}.')
        if type(self.max_pixels) is not int or self.max_pixels < 1:
            raise ValueError(f"max_pixels must be a whole number above 0, not {self.max_pixels!r}.")
        sizes = (self.files_per_partition, self.blocksize)
        kwargs = self.read_kwargs
        super().__init__(self.file_paths, *sizes, self.fields, kwargs, None, self.limit, self.sample)

    @property
    def image_options(self) -> ImageOptions:
        """The arguments that concern single images."""
        first = self.caption_lines == "first"
        return ImageOptions(self.image_field, self.path_field, self.caption_field, first, self.fields, self.max_pixels)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [] if self.fields is None else [IMAGE, IMAGE_ID, CAPTION, *self.fields]

    def output_type(self) -> TaskType | None:
        return ImageBatch

    def check_needs(self) -> None:
        if find_spec("PIL") is None:
            raise PlanError(f"{self.name!r} needs Pillow to read images: pip install 'gristmill[image]'.")

    def preload(self) -> None:
        from PIL import Image

        from gristmill.stages.image.io.reader import building, sources, tables  # noqa: F401  # shared by all workers

        Image.init()

    @property
    def gives_the_same_again(self) -> bool:
        """Whether images that are read twice are the same. A server may fail at one of many files at any time."""
        return self._columns is None or not self._columns.is_linked

    def process(self, task: FileBlock | FileGroupTask) -> ImageBatch | Iterator[ImageBatch]:
        if isinstance(task, FileGroupTask):
            return self._group(task)
        batches = self._source_of(task.data[0] if task.data else None).batches(task.data)
        return batches if self.makes_several_batches(task) else next(batches)

    def _group(self, task: FileGroupTask) -> Iterator[ImageBatch]:
        """The images of files that were given as a task."""
        reader = copy.copy(self)
        reader.file_paths = task.data
        for block in reader.source() or ():
            found = reader.process(block)
            yield from [found] if isinstance(found, ImageBatch) else found

    def _source_of(self, one: FileRange | File | None) -> ImageSource:
        """What reads a file, or a part of it."""
        from gristmill.stages.image.io.reader.folders import FolderRange
        from gristmill.stages.image.io.reader.sources import FolderSource, ShardSource, TableSource

        path = "" if one is None else one.path
        kind = FILES if isinstance(one, FolderRange) or path.endswith("/") else self.kind or kind_of(path)
        if kind == FILES:
            return FolderSource(self, self.image_options, self._folders)
        if kind == SHARDS:
            return ShardSource(self, self.image_options)
        assert self._columns is not None, "source() has found the columns"
        return TableSource(self, self.image_options, self._rows(kind), self._columns)

    def _rows(self, kind: str | None) -> FileReader:
        """The reader of the rows of tables."""
        from gristmill.stages.text.io.reader.jsonl import JsonlReader
        from gristmill.stages.text.io.reader.parquet import ParquetReader

        sizes = (self.files_per_partition, self.blocksize)
        storage = {"storage_options": self.options}
        rows = ParquetReader if kind == TABLES else JsonlReader
        return rows(None, *sizes, None, storage, None, self.limit, self.sample)

    def listed(self) -> Listing:
        ends = [end for kind, ends in EXTENSIONS.items() if self.kind in (None, kind) for end in ends]
        beside = BESIDE if self.kind in (None, FILES) else ()
        assert self.file_paths is not None
        listing = list_input(self.file_paths, (*ends, *beside), self.options)
        listing.others.clear()  # the user has chosen between them
        return listing

    def files_of(self, listing: Listing) -> list[File]:
        from gristmill.stages.image.io.reader.folders import folders_of
        from gristmill.stages.image.io.reader.tables import detected

        files = listing.files
        kind = self.kind or one_kind(files, self.name)
        self._columns, self._folders = None, ()
        if kind == FILES:
            with plain_errors(files[0].path, self.options):
                self._folders = folders_of(files, self.options, listing.is_of_folders)
            if not self._folders:
                raise PlanError(f"{self.name!r}: the input holds no image.")
            return [folder.as_file() for folder in self._folders]
        files = [file for file in files if self.kind or kind_of(file.path) == kind]
        if kind in (TABLES, MANIFESTS):
            with plain_errors(files[0].path, self.options):
                self._columns = detected(files, kind == TABLES, self.image_options, self.options, self.name)
        return files

    def versions(self) -> list[tuple[str, str]]:
        return [(file.path, file.version) for file in self.found.files] if self._folders else super().versions()

    def changed_inputs(self) -> list[str]:
        from gristmill.stages.image.io.reader.folders import changes

        if not self._folders:
            return super().changed_inputs()
        return list(islice(changes(self._folders, self.options), MOST_CHANGED))

    def groups(self, files: Sequence[File], block_bytes: int | None = None) -> list[list[FileRange]]:
        size = block_bytes or self._block_bytes_for(files)
        return self._source_of(files[0] if files else None).groups(files, size)

    def _block_bytes_for(self, files: Sequence[File]) -> int:
        if self._columns is None or not self._columns.is_linked or self.blocksize or self.files_per_partition:
            return super()._block_bytes_for(files)
        # few lines name many images
        total = sum(self.estimated_bytes(file) for file in files)
        return max(MANIFEST_BLOCK_BYTES, -(-total // MOST_MANIFEST_BLOCKS))

    def parts(self, files: Sequence[File], block_bytes: int) -> Iterator[tuple[FileRange, int]]:
        sizes = {file.path: file.size or 0 for file in files}
        for part in chain.from_iterable(self._source_of(files[0]).groups(files, block_bytes)):
            yield part, min(sizes[part.path], block_bytes)

    def makes_several_batches(self, block: FileBlock) -> bool:
        return any(self._source_of(part).makes_several_batches(part) for part in block.data)

    def up_to_limit(self, file: File, limit: int) -> tuple[int, File]:
        return self._source_of(file).up_to_limit(file, limit)

    def holds(self, part: FileRange, path: str) -> bool:
        from gristmill.stages.image.io.reader.folders import FolderRange

        return part.holds(path) if isinstance(part, FolderRange) else part.path == path

    def linked(self, before: Stages, after: Stages) -> Self:
        if not before and self.found.blocks is None:
            self.source()  # the copy needs what it finds
        return super().linked(before, after)

    def reading_for(self, after: Stages) -> Self:
        clone = super().reading_for(after)
        clone._folders = ()  # blocks hold their parts of folders
        return clone

    def samples_of(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> list[InputSample]:
        if not self.gives_the_same_again:
            return []  # it would take a request for each image
        middle = parts[len(parts) // 2]
        spans = Counter[str]()
        for part in parts:
            spans[part.path] += max(part.stop - part.start, 0)
        stored = sizes[middle.path]
        if middle.stop >= 0 and spans[middle.path]:
            stored = stored * (middle.stop - middle.start) // spans[middle.path]

        def read() -> ImageBatch:
            return next(self._source_of(middle).batches([middle]))

        def scale(batch: DocumentBatch) -> float:
            account = batch.account.bytes_read if middle.stop < 0 else 0
            return sum(sizes.values()) / max(1, account or stored)

        return [InputSample(read, scale)]


@builtin
class ImageReaderStage(ImageReader):
    """`ImageReader` under the name that NeMo Curator has for it."""
