"""The base of readers: their arguments, the files that these name, and the columns that later stages need."""

from __future__ import annotations

import copy
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Self

from gristmill.errors import InputChanged, PlanError
from gristmill.logs import logger
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Linked, Paths, Source, Stages
from gristmill.stages.registry import arguments_of
from gristmill.stages.text.io.blocks import DEFAULT_BLOCKSIZE, UNPACKED, bytes_of, default_blocksize, numbered
from gristmill.stages.text.io.compression import by_name
from gristmill.stages.text.io.listing import File, list_input, plain_errors
from gristmill.stages.text.io.reader.sample import Some, check, first_keys
from gristmill.stages.text.io.stamps import check_path
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange, Task

if TYPE_CHECKING:
    from gristmill.stages.text.io.reader.choice import Choice

DEFAULT_HELD_BYTES = 16 << 20
"""How many bytes of documents a worker is taken to read at a time, where files do not tell."""


@dataclass(frozen=True)
class FoundInput:
    """What `FileReader.source` found."""

    files: Sequence[File] = ()
    blocks: list[FileBlock] | None = None
    """None once `FileReader.linked` has used them: files come and go."""
    counted: int | None = None
    """The documents that were counted; None without a limit."""


class FileReader(Source[FileBlock | FileGroupTask, DocumentBatch], Linked):
    """Reads blocks of files, or groups of whole files, into documents."""

    extensions: ClassVar[tuple[str, ...]] = ()
    """The ends of the names that are read when a folder is given."""
    accounts_for_documents = True
    fan_out = True
    found = FoundInput()
    _has_warned = False
    columns: list[str] | None = None
    """The columns that are taken; None: all."""
    if_there: tuple[str, ...] = ()
    """Those among them that are left out of batches in which no document has them."""
    required: tuple[str, ...] = ()
    """Columns that batches have, as nulls if need be, where all columns are taken."""

    seen: tuple[str, ...] = ()
    """Fields of the first records: the columns of a batch without documents, where all columns are taken."""

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
            raise ValueError("give files_per_partition or blocksize, not both: one of them says how large blocks are.")
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

    @property
    def block_bytes(self) -> int:
        return self.blocksize or DEFAULT_BLOCKSIZE

    def _block_bytes_for(self, files: Sequence[File]) -> int:
        """The size of blocks for these files."""
        if self.files_per_partition or self.blocksize:
            return self.block_bytes
        return default_blocksize(sum(self._estimated_bytes(file) for file in files))

    def limited(self, limit: int | None = None, sample: float | None = None) -> Self:
        """Return a copy that reads fewer documents; None leaves what was set."""
        changes = {key: value for key, value in (("limit", limit), ("sample", sample)) if value is not None}
        clone = type(self)(**{**self._given(), **changes})
        if self._settings:
            clone = clone.with_(**self._settings)
        return clone

    def _given(self) -> dict[str, Any]:
        """The arguments that it was made with."""
        arguments = arguments_of(self)
        if arguments is None:
            raise PlanError(f"{self.name!r} cannot be given a limit or a sample: its class is not registered.")
        return arguments

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.fields or [])

    def source(self) -> list[FileBlock] | None:
        if self.file_paths is None:
            return None
        listing = list_input(self.file_paths, self.extensions, self.options)
        if not self._has_warned:
            for line in listing.warnings(type(self).__name__):
                logger.warning(line)
            self._has_warned = True
        files, counted = listing.files, None
        if self.limit is not None:
            files, counted = self._first(files, self.limit)
        with plain_errors(files[0].path, self.options):
            blocks = numbered(self._groups(files))
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
        """Of files elsewhere, those that a new listing does not show to be the same: one request lists many."""
        assert self.file_paths is not None
        try:
            now = list_input(self.file_paths, self.extensions, self.options).found
        except PlanError:  # what is named is gone: each file is asked for
            return list(files)
        return [file for file in files if file.path not in now or file.stamp.changes(now[file.path].stamp)]

    def block_sizes(self, blocks: Sequence[Task[Any]]) -> Sequence[int]:
        sizes = {file.path: file.size for file in self.found.files}
        spans: Counter[str] = Counter()
        """Of each file that is cut into ranges: the length of all ranges, in bytes or row groups."""
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
        """The blocks of the files that `source` found, each list of names in `versions` cut by itself.

        Numbers run through all of them.
        """
        by_name = {file.path: file for file in self.found.files}
        groups = [self._groups([by_name[name] for name in some]) if some else [] for some in names]
        blocks = iter(numbered([group for some in groups for group in some]))
        return [list(islice(blocks, len(some))) for some in groups]

    def linked(self, before: Stages, after: Stages) -> Self:
        clone = self.reading_for(after)
        if not before:
            listed = self.source() if self.found.blocks is None else self.found.blocks
            clone.fan_out = listed is None or any(self._gives_several(block) for block in listed)
            if listed:
                first = _first_with_content(listed)
                with plain_errors(first.path, self.options):
                    fields = self._first_fields(first)
                check(self.name, self.text_field, first.path, fields, after)
                clone.seen = tuple(fields)
        self.found = replace(self.found, blocks=None)
        return clone

    def reading_for(self, after: Stages) -> Self:
        """A copy that takes the columns which these stages need, and no others."""
        clone = copy.copy(self)
        clone.found = FoundInput()
        clone._take_for(after)
        return clone

    def some(self, blocks: Sequence[FileBlock], size: int, after: Stages) -> list[Some]:
        """About ``size`` bytes of each kind of file that `source` has found, as these stages need them.

        Nothing if it is not known how much there is.
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

        found = whole._some(parts, sizes, size)
        return [replace(some, read=partial(plainly, some.read), share=share) for some in found]

    def held(self, blocks: Sequence[FileBlock]) -> tuple[int, int]:
        """How many bytes of documents a worker reads at a time: of files that it takes parts of, and of streams."""
        return DEFAULT_HELD_BYTES, 0

    def _choice(self, part: FileRange) -> Choice:
        """Which records of a range are taken."""
        from gristmill.stages.text.io.reader.choice import Choice

        return Choice(self.sample, part.key, part.limit)

    def _first(self, files: Sequence[File], limit: int) -> tuple[list[File], int]:
        """The files that hold the first ``limit`` documents, and how many they hold.

        The last of them comes with as many as are taken of it.
        """
        found: list[File] = []
        left = limit
        for file in files:
            if not left:
                break
            try:
                taken, file = self._first_of(file, left)
            except OSError as error:
                raise PlanError(f"{file.path} cannot be read: {error.strerror or error}.") from None
            found.append(file)
            left -= taken
        return found, limit - left

    def _first_of(self, file: File, limit: int) -> tuple[int, File]:
        """How many of the first ``limit`` documents are in a file, and the file cut to those."""
        raise NotImplementedError

    def _estimated_bytes(self, file: File) -> int:
        """About how much a file is once it is read."""
        size = file.size or 0
        return size * UNPACKED if by_name(file.path) else size

    def range_of(self, file: File, start: int = 0, stop: int = -1, limit: int = -1, batch_bytes: int = 0) -> FileRange:
        """A part of a file that was planned, or all of it."""
        key = 0
        if self.sample is not None:
            from gristmill.stages.text.io.reader.choice import file_key

            key = file_key(file.name)
        return FileRange(file.path, start, stop, limit, file.stamp, key, batch_bytes, file.url)

    def _some(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> list[Some]:
        raise NotImplementedError

    def _take_for(self, after: Stages) -> None:
        """Take the columns that stages after this one need, up to the one that writes them."""
        needed: dict[str, None] = {}
        probed: dict[str, None] = {}
        required: dict[str, None] = {}
        made: set[str] = set()
        takes_all = is_open = False
        self.columns, self.if_there, self.required = None, (), ()
        for stage in after:
            names = self._needed_by(stage)
            takes_all |= names is None
            looked_at = stage.looks_at()
            if stage.takes_paths:
                paths = [name for name in names or () if "." in name]
                names = [name for name in names or () if "." not in name]
                looked_at = [*looked_at, *(key for path in paths for key in first_keys(path))]
            needed.update(dict.fromkeys(name for name in names or () if name not in made))
            probed.update(dict.fromkeys(name for name in looked_at if name not in made))
            if not (stage.builtin or is_open):
                required.update(dict.fromkeys(name for name in stage.inputs()[1] if name not in made))
            if stage.output_type() not in (None, DocumentBatch):
                if not takes_all:
                    self.columns = list(needed | probed)
                    self.if_there = tuple(name for name in probed if name not in needed)
                break
            if stage.declares_outputs():
                made.update(name for name in stage.outputs()[1] if name not in needed)
            else:  # it may make any column
                is_open = True
        self.required = tuple(required)

    def _needed_by(self, stage: ProcessingStage[Any, Any]) -> list[str] | None:
        """The columns that have to be read for a stage; None: all."""
        return stage.columns_needed()

    def _first_fields(self, part: FileRange) -> dict[str, set[str]]:
        """The fields of the first records, each with the paths inside; empty if they cannot be told quickly."""
        return {}

    def _groups(self, files: list[File], block_bytes: int | None = None) -> list[list[FileRange]]:
        """The blocks that files make, of ``block_bytes`` if that is decided already."""
        raise NotImplementedError

    def _gives_several(self, block: FileBlock) -> bool:
        """Whether a block becomes more than one batch."""
        raise NotImplementedError

    def _by_count(self, files: list[File]) -> list[list[FileRange]]:
        step = self.files_per_partition or 1
        ranges = [self.range_of(file, limit=file.limit) for file in files]
        return [ranges[i : i + step] for i in range(0, len(ranges), step)]

    @staticmethod
    def _ranges(task: FileBlock | FileGroupTask) -> list[FileRange]:
        if isinstance(task, FileGroupTask):
            return [FileRange.of(path) for path in task.data]
        return task.data


def _first_with_content(blocks: Sequence[FileBlock]) -> FileRange:
    """The first range that is not empty, as far as that is known; else the first."""
    ranges = (part for block in blocks for part in block.data)
    return next((part for part in ranges if part.stop != part.start), blocks[0].data[0])
