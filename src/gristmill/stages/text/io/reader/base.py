"""The base of readers: their arguments, the files that these name, and the columns that later stages need."""

from __future__ import annotations

import copy
from abc import abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Self

from gristmill.errors import InputChanged, PlanError
from gristmill.logs import logger
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Linked, Paths, Source, Stages
from gristmill.stages.registry import arguments_of
from gristmill.stages.text.io.blocks import DEFAULT_BLOCKSIZE, UNPACKED, bytes_of, default_blocksize, numbered, pack
from gristmill.stages.text.io.compression import by_name
from gristmill.stages.text.io.listing import File, Listing, list_input
from gristmill.stages.text.io.reader.columns import Wanted
from gristmill.stages.text.io.reader.sample import InputSample, check_fields
from gristmill.stages.text.io.stamps import check_path
from gristmill.storage import plain_errors
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange, Task

if TYPE_CHECKING:
    from gristmill.stages.text.io.reader.choice import Choice

DEFAULT_HELD_BYTES = 16 << 20
"""The bytes of documents that a worker reads at a time, if files do not state it."""


@dataclass(frozen=True)
class FoundInput:
    """The files and blocks that `FileReader.source` found."""

    files: Sequence[File] = ()
    blocks: list[FileBlock] | None = None
    """None once `FileReader.linked` has used them: files come and go."""
    counted: int | None = None
    """The documents that were counted; None without a limit."""


class FileReader(Source[FileBlock | FileGroupTask, DocumentBatch], Linked):
    """Reads blocks of files, or groups of whole files, into documents.

    A reader of another format defines the abstract methods below, and has a line in `gristmill.stages.text.io.formats`.
    """

    extensions: ClassVar[tuple[str, ...]] = ()
    """The ends of the names that are read when a folder is given."""
    accounts_for_documents = True
    fan_out = True
    found = FoundInput()
    _has_warned = False
    _chosen: list[FileBlock] | None = None
    """The only blocks that are read, if the reader is one of `of_blocks`."""

    @abstractmethod
    def parts(self, files: Sequence[File], block_bytes: int) -> Iterator[tuple[FileRange, int]]:
        """Yield the files in ranges of about ``block_bytes`` in memory, in order, each with its size.

        Blocks, which are the inputs of tasks, consist of ranges. ``start`` and ``stop`` may count bytes or row groups.
        """

    @abstractmethod
    def makes_several_batches(self, block: FileBlock) -> bool:
        """Return whether `process` may return several batches for a block that `parts` made."""

    @abstractmethod
    def up_to_limit(self, file: File, limit: int) -> tuple[int, File]:
        """Return how many of the first ``limit`` documents are in a file, and the file limited to those."""

    @abstractmethod
    def samples_of(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> list[InputSample]:
        """Return samples of about ``size`` bytes of the files, one for each kind; ``sizes`` are those of the files."""

    def listed(self) -> Listing:
        """List the input."""
        assert self.file_paths is not None
        return list_input(self.file_paths, self.extensions, self.options)

    def files_of(self, listing: Listing) -> list[File]:
        """The inputs among the files that were listed, sorted by path."""
        return listing.files

    def holds(self, part: FileRange, path: str) -> bool:
        """Whether documents with this path in their ids may be in a range."""
        return part.path == path

    @property
    def gives_the_same_again(self) -> bool:
        """Whether a block that is read twice gives the same documents."""
        return True

    def needed_by(self, stage: ProcessingStage[Any, Any]) -> list[str] | None:
        """The columns that have to be read for a stage; None: all."""
        return stage.columns_needed()

    def first_fields(self, part: FileRange) -> dict[str, set[str]]:
        """The fields of the first records, each with the paths inside; empty if that would take long."""
        return {}

    def estimated_bytes(self, file: File) -> int:
        """The estimated size of a file in memory."""
        size = file.size or 0
        return size * UNPACKED if by_name(file.path) else size

    def bytes_at_once(self, blocks: Sequence[FileBlock]) -> tuple[int, int]:
        """How many bytes of documents a worker reads at a time: of files that it reads in parts, and of streams."""
        return DEFAULT_HELD_BYTES, 0

    def __init__(
        self,
        file_paths: Paths | None = None,
        files_per_partition: int | None = None,
        blocksize: int | str | None = None,
        fields: Sequence[str] | None = None,
        read_kwargs: dict[str, Any] | None = None,
        text_field: str | None = "text",
        limit: int | None = None,
        sample: float | None = None,
    ) -> None:
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ValueError(f"limit must be a whole number above 0, not {limit!r}.")
        if sample is not None and (type(sample) not in (int, float) or not 0 < sample <= 1):
            raise ValueError(f"sample must be a fraction above 0 and up to 1, not {sample!r}.")
        if files_per_partition is not None and blocksize is not None:
            raise ValueError("give files_per_partition or blocksize, not both: one of them sets the size of blocks.")
        if files_per_partition is not None and (type(files_per_partition) is not int or files_per_partition < 1):
            raise ValueError(f"files_per_partition must be a whole number above 0, not {files_per_partition!r}.")
        if isinstance(fields, str):
            raise ValueError(f"fields must be a list of names: [{fields!r}].")
        options = dict(read_kwargs or {})
        self.options: dict[str, Any] = dict(options.pop("storage_options", None) or {})
        if options:
            raise ValueError(f"read_kwargs knows 'storage_options' only, not {', '.join(map(repr, sorted(options)))}.")
        self.file_paths = file_paths
        self.files_per_partition = files_per_partition
        self.blocksize = None if blocksize is None else bytes_of(blocksize)
        self.fields = None if fields is None else list(dict.fromkeys(fields))
        self.text_field = text_field if self.fields is None or text_field in self.fields else None
        self.limit = limit
        self.sample = None if sample is None else float(sample)
        self.wanted = Wanted(self.text_field, None, self.fields)

    @property
    def block_bytes(self) -> int:
        return self.blocksize or DEFAULT_BLOCKSIZE

    def _block_bytes_for(self, files: Sequence[File]) -> int:
        """The size of blocks for these files."""
        if self.files_per_partition or self.blocksize:
            return self.block_bytes
        return default_blocksize(sum(self.estimated_bytes(file) for file in files))

    def limited(self, limit: int | None = None, sample: float | None = None) -> Self:
        """Return a copy that reads fewer documents; None leaves what was set."""
        arguments = arguments_of(self)
        if arguments is None:
            raise PlanError(f"{self.name!r} cannot be given a limit or a sample: its class is not registered.")
        changes = {key: value for key, value in (("limit", limit), ("sample", sample)) if value is not None}
        clone = type(self)(**{**arguments, **changes})
        if self._settings:
            clone = clone.with_(**self._settings)
        return clone

    def of_blocks(self, groups: Sequence[list[FileRange]]) -> Self:
        """Return a copy whose `source` gives these blocks of the input, and no others. Their numbers begin at 0."""
        clone = copy.copy(self)
        clone.found = FoundInput()
        clone._chosen = numbered(groups)
        return clone

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.fields or [])

    def source(self) -> list[FileBlock] | None:
        if self.file_paths is None:
            return None
        listing = self.listed()
        if not self._has_warned:
            for line in listing.warnings(type(self).__name__):
                logger.warning(line)
            self._has_warned = True
        files, counted = self.files_of(listing), None
        if self.limit is not None:
            files, counted = self._first_files(files, self.limit)
        with plain_errors(files[0].path, self.options):
            blocks = numbered(self.groups(files)) if self._chosen is None else self._chosen
        self.found = FoundInput(files, blocks, counted)
        return blocks

    def versions(self) -> list[tuple[str, str]]:
        return [
            (file.path, f"{'?' if file.stamp.size is None else file.stamp.size} bytes, {file.version}")
            for file in self.found.files
        ]

    def changed_inputs(self) -> list[str]:
        files = self.found.files
        found = []
        for file in files if all(file.stamp.place for file in files) else self._listed_again(files):
            try:
                check_path(file.location, file.stamp, self.options)
            except InputChanged as error:
                found.append(str(error))
        return found

    def _listed_again(self, files: Sequence[File]) -> list[File]:
        """The remote files that a new listing does not show to be the same: one request lists many."""
        try:
            now = self.listed().found
        except PlanError:  # a named file is gone: each is checked by itself
            return list(files)
        return [file for file in files if file.path not in now or file.stamp.changes(now[file.path].stamp)]

    def block_sizes(self, blocks: Sequence[Task[Any]]) -> Sequence[int]:
        sizes = {file.path: file.size for file in self.found.files}
        spans: Counter[str] = Counter()
        """The length of all ranges of each file, in bytes or row groups."""
        for block in blocks:
            for part in block.data:
                spans[part.path] += max(part.stop - part.start, 0)
        found = array("q")
        for block in blocks:
            size = 0
            for part in block.data:
                whole = sizes.get(part.path)
                if whole is None:
                    return ()
                span = part.stop - part.start
                size += whole if part.stop < 0 or not spans[part.path] else whole * span // spans[part.path]
            found.append(size)
        return found

    def in_segments(self, names: Sequence[Sequence[str]]) -> list[list[FileBlock]]:
        """The blocks of the files that `source` found, separately for each list of their names in `versions`.

        Their numbers are consecutive over all lists.
        """
        by_name = {file.path: file for file in self.found.files}
        groups = [self.groups([by_name[name] for name in some]) if some else [] for some in names]
        blocks = iter(numbered([group for some in groups for group in some]))
        return [list(islice(blocks, len(some))) for some in groups]

    def linked(self, before: Stages, after: Stages) -> Self:
        clone = self.reading_for(after)
        if not before:
            listed = self.source() if self.found.blocks is None else self.found.blocks
            clone.fan_out = listed is None or any(self.makes_several_batches(block) for block in listed)
            if listed:
                first = _first_with_content(listed)
                with plain_errors(first.path, self.options):
                    fields = self.first_fields(first)
                check_fields(self.name, self.text_field, first.path, fields, after)
                clone.wanted = replace(clone.wanted, if_empty=tuple(fields))
        self.found = replace(self.found, blocks=None)
        return clone

    def reading_for(self, after: Stages) -> Self:
        """A copy that reads the columns which these stages need, and no others."""
        clone = copy.copy(self)
        clone.found = FoundInput()
        clone._chosen = None  # workers get the blocks as tasks
        clone.wanted = self.wanted.for_stages(after, self.needed_by)
        return clone

    def samples(self, blocks: Sequence[FileBlock], size: int, after: Stages) -> list[InputSample]:
        """About ``size`` bytes of each kind of file that `source` found, with the columns that these stages need.

        Empty if the sizes of the files are not known.
        """
        sizes = {file.path: file.size for file in self.found.files if file.size is not None}
        parts = [part for block in blocks for part in block.data]
        if not parts or any(part.path not in sizes for part in parts):
            return []
        whole = self.reading_for(after)
        whole.sample = None
        share = 1.0 if self.sample is None else self.sample

        def plainly(read: Callable[[], DocumentBatch]) -> DocumentBatch:
            with plain_errors(parts[0].path, self.options):
                return read()

        found = whole.samples_of(parts, sizes, size)
        return [replace(sample, read=partial(plainly, sample.read), share=share) for sample in found]

    def _choice(self, part: FileRange) -> Choice:
        """Chooses the records of a range."""
        from gristmill.stages.text.io.reader.choice import Choice

        return Choice(self.sample, part.key, part.limit)

    def _first_files(self, files: Sequence[File], limit: int) -> tuple[list[File], int]:
        """The files that hold the first ``limit`` documents, and how many they hold. The last file may be limited."""
        found: list[File] = []
        left = limit
        for file in files:
            if not left:
                break
            try:
                taken, file = self.up_to_limit(file, left)
            except OSError as error:
                raise PlanError(f"{file.path} cannot be read: {error.strerror or error}.") from None
            found.append(file)
            left -= taken
        return found, limit - left

    def range_of(self, file: File, start: int = 0, stop: int = -1, limit: int = -1, batch_bytes: int = 0) -> FileRange:
        """A part of a listed file, or all of it."""
        key = 0
        if self.sample is not None:
            from gristmill.stages.text.io.reader.choice import file_key

            key = file_key(file.name)
        return FileRange(file.path, start, stop, limit, file.stamp, key, batch_bytes, file.url)

    def groups(self, files: Sequence[File], block_bytes: int | None = None) -> list[list[FileRange]]:
        """The ranges of each block that the files make, of ``block_bytes`` if that is decided already."""
        if step := self.files_per_partition:
            ranges = [self.range_of(file, limit=file.limit) for file in files]
            return [ranges[i : i + step] for i in range(0, len(ranges), step)]
        limit = block_bytes or self._block_bytes_for(files)
        parts = list(self.parts(files, limit))
        groups = [[part] for part, _ in parts]
        return groups if self.blocksize is None else pack(groups, [size for _, size in parts], limit)

    @staticmethod
    def _ranges(task: FileBlock | FileGroupTask) -> list[FileRange]:
        if isinstance(task, FileGroupTask):
            return [FileRange.of(path) for path in task.data]
        return task.data


def _first_with_content(blocks: Sequence[FileBlock]) -> FileRange:
    """The first range that is not empty, as far as that is known; else the first."""
    ranges = (part for block in blocks for part in block.data)
    return next((part for part in ranges if part.stop != part.start), blocks[0].data[0])
