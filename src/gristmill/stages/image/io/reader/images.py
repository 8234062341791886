"""Images from folders, shards, Parquet files and manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gristmill.errors import PlanError
from gristmill.images.decode import MAX_PIXELS
from gristmill.stages.hints import TaskType
from gristmill.stages.image.io.reader.media import MediaReader
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
from gristmill.stages.protocols import Paths
from gristmill.stages.registry import builtin
from gristmill.stages.text.io.listing import File, Listing, list_input
from gristmill.stages.text.io.reader.sample import InputSample
from gristmill.storage import plain_errors
from gristmill.tasks import DocumentBatch, FileRange, ImageBatch
from gristmill.tasks.image import CAPTION, IMAGE, IMAGE_ID

if TYPE_CHECKING:
    from gristmill.stages.image.io.reader.sources import ImageSource


@builtin
@dataclass(eq=False, repr=False)
class ImageReader(MediaReader):
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

    def samples_of(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> list[InputSample]:
        if not self.gives_the_same_again:
            return []  # it would take a request for each image
        middle, stored = self.middle_of(parts, sizes)

        def read() -> ImageBatch:
            return next(self._source_of(middle).batches([middle]))

        def scale(batch: DocumentBatch) -> float:
            account = batch.account.bytes_read if middle.stop < 0 else 0
            return sum(sizes.values()) / max(1, account or stored)

        return [InputSample(read, scale)]


@builtin
class ImageReaderStage(ImageReader):
    """`ImageReader` under the name that NeMo Curator has for it."""
