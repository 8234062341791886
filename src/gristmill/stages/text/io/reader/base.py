"""What readers share: what they are told, which files that means, what the stages behind them need."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io.blocks import DEFAULT_BLOCKSIZE, bytes_of, numbered
from gristmill.stages.text.io.listing import File, list_files
from gristmill.stages.text.io.reader.sample import Some, check
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class FileReader(ProcessingStage[FileBlock | FileGroupTask, DocumentBatch]):
    """Reads blocks of files, or groups of whole files, into documents."""

    extensions: ClassVar[tuple[str, ...]] = ()
    """How names end that are read when a folder is given."""
    fan_out = True
    columns: list[str] | None = None
    """The columns that are taken; None: all."""
    if_there: tuple[str, ...] = ()
    """Those among them that are left out of batches in which no document has them."""
    required: tuple[str, ...] = ()
    """Columns that batches have, as nulls if need be, where all columns are taken."""

    def __init__(
        self,
        file_paths: Paths | None = None,
        files_per_partition: int | None = None,
        blocksize: int | str | None = None,
        fields: Sequence[str] | None = None,
        read_kwargs: dict[str, Any] | None = None,
        text_field: str | None = "text",
    ) -> None:
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

    @property
    def block_bytes(self) -> int:
        return self.blocksize or DEFAULT_BLOCKSIZE

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.fields or [])

    def source(self) -> list[FileBlock] | None:
        if self.file_paths is None:
            return None
        files = list_files(self.file_paths, self.extensions, self.options)
        blocks = numbered(self._groups(files))
        self.__dict__["_listed"] = blocks
        self.__dict__["_files"] = files
        return blocks

    def versions(self) -> list[tuple[str, str]]:
        """The files that `source` has found, each with what changes when its content does."""
        files: list[File] = self.__dict__.get("_files", [])
        return [(file.path, f"{'?' if file.size is None else file.size} bytes, {file.version}") for file in files]

    def linked(self, before: Sequence[ProcessingStage[Any, Any]], after: Sequence[ProcessingStage[Any, Any]]) -> Self:
        clone = copy.copy(self)
        clone.__dict__.pop("_files", None)
        clone._take_for(after)
        listed = self.__dict__.pop("_listed", None)  # what `source` found is of use once: files come and go
        if not before:
            listed = self.source() if listed is None else listed
            for one in (self, clone):
                one.__dict__.pop("_listed", None)
            clone.fan_out = listed is None or any(self._gives_several(block) for block in listed)
            if listed:
                path = listed[0].data[0].path
                check(self.name, self.text_field, path, self._first_fields(listed[0].data[0]), after)
        return clone

    def reading_for(self, after: Sequence[ProcessingStage[Any, Any]]) -> Self:
        """A copy that takes the columns which these stages need, and no others."""
        clone = copy.copy(self)
        for name in ("_files", "_listed"):
            clone.__dict__.pop(name, None)
        clone._take_for(after)
        return clone

    def some(self, blocks: Sequence[FileBlock], size: int, after: Sequence[ProcessingStage[Any, Any]]) -> Some | None:
        """About ``size`` bytes from the middle of what `source` has found, as these stages need it.

        None if it cannot be told how much there is.
        """
        files: list[File] = self.__dict__.get("_files", [])
        sizes = {file.path: file.size for file in files if file.size is not None}
        parts = [part for block in blocks for part in block.data]
        if not parts or any(part.path not in sizes for part in parts):
            return None
        return self.reading_for(after)._some(parts, sizes, size)

    def _some(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> Some:
        raise NotImplementedError

    def _take_for(self, after: Sequence[ProcessingStage[Any, Any]]) -> None:
        """Take the columns that stages after this one need, up to the one that writes them."""
        needed: dict[str, None] = {}
        probed: dict[str, None] = {}
        required: dict[str, None] = {}
        made: set[str] = set()
        takes_all = is_open = False
        self.columns, self.if_there, self.required = None, (), ()
        for stage in after:
            names = self._taken(stage)
            takes_all |= names is None
            needed.update(dict.fromkeys(name for name in names or () if name not in made))
            probed.update(dict.fromkeys(name for name in stage.looks_at() if name not in made))
            if stage.is_custom() and not is_open:
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

    def _taken(self, stage: ProcessingStage[Any, Any]) -> list[str] | None:
        """The columns that a stage takes; None: any."""
        writes = getattr(stage, "columns_needed", None)
        if writes is not None:
            needed: list[str] | None = writes()
            return needed
        if stage.is_custom() and not stage.only_inputs:
            return None
        return stage.inputs()[1] if stage.declares_inputs() else None

    def _first_fields(self, part: FileRange) -> set[str]:
        """The fields of the first records; empty if they cannot be told quickly."""
        return set()

    def _groups(self, files: list[File]) -> list[list[FileRange]]:
        """The blocks that files make."""
        raise NotImplementedError

    def _gives_several(self, block: FileBlock) -> bool:
        """Whether a block becomes more than one batch."""
        raise NotImplementedError

    def _by_count(self, files: list[File]) -> list[list[FileRange]]:
        step = self.files_per_partition or 1
        return [[FileRange(file.path) for file in files[i : i + step]] for i in range(0, len(files), step)]

    @staticmethod
    def _ranges(task: FileBlock | FileGroupTask) -> list[FileRange]:
        if isinstance(task, FileGroupTask):
            return [FileRange(path) for path in task.data]
        return task.data
