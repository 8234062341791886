"""The base of the workflows of exact and fuzzy deduplication: files in, files out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from gristmill.errors import PlanError
from gristmill.pipeline import Pipeline, RunResult
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.deduplication.identified import Identified
from gristmill.stages.text.io.formats import FORMATS, all_extensions
from gristmill.stages.text.io.listing import list_files

if TYPE_CHECKING:
    from gristmill.backends.base import Executor

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def kind_of_files(input_path: Paths, read_kwargs: dict[str, Any] | None) -> str:
    """Return the format of the input by the names of its files. Several are a `PlanError`."""
    storage = dict((read_kwargs or {}).get("storage_options") or {})
    files = list_files(input_path, all_extensions(), storage)
    found = {kind: sum(one.matches(file.path) for file in files) for kind, one in FORMATS.items()}
    if len(there := [f"{count} {FORMATS[kind].name}" for kind, count in found.items() if count]) > 1:
        raise PlanError(f"{input_path} holds {' and '.join(there)} files: choose one with input_filetype.")
    return max(FORMATS, key=lambda kind: found[kind])


@dataclass(frozen=True)
class DeduplicationResult:
    """The result of a workflow."""

    documents: int
    duplicates: int
    """Documents that are removed, or would be with ``perform_removal``."""
    records: str
    """The folder of Parquet files with a row for each duplicate: its id, the survivor's, the cluster, similarities."""
    output: str | None
    """The folder of the documents that are left; None without ``perform_removal``."""
    run: RunResult

    def summary(self) -> str:
        """Return a table of the run."""
        return self.run.summary()


class DeduplicationWorkflow:
    """Reads files, finds duplicates in them and, unless ``perform_removal`` is False, writes the others.

    A workflow is a dataclass: its fields are those below, those of its stage, and their order is that of arguments.
    """

    name = "deduplication"
    stage_class: ClassVar[type[FuzzyDeduplication] | type[ExactDeduplication]]

    input_path: Paths
    output_path: str | os.PathLike[str]
    text_field: str
    input_blocksize: int | str | None
    """How much is read at a time."""
    input_filetype: str | None
    output_filetype: str | None
    perform_removal: bool
    memory_limit: int | str | None
    read_kwargs: dict[str, Any] | None
    write_kwargs: dict[str, Any] | None

    def __post_init__(self) -> None:
        for name, given in (("input_filetype", self.input_filetype), ("output_filetype", self.output_filetype)):
            if given is not None and given not in FORMATS:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, FORMATS))}, not {given!r}.")
        if type(self.text_field) is not str:
            raise ValueError(f"text_field must be the name of a field, not {self.text_field!r}.")
        if type(self.perform_removal) is not bool:
            raise ValueError(f"perform_removal must be True or False, not {self.perform_removal!r}.")
        self._output = os.fspath(self.output_path)
        arguments = {field.name: getattr(self, field.name) for field in fields(self.stage_class)}
        self._stage = self.stage_class(**arguments)

    def stage(self) -> FuzzyDeduplication | ExactDeduplication:
        """Return the stage that finds and removes duplicates."""
        return self._stage

    def run(self, executor: Executor | None = None, *, fresh: bool = False) -> DeduplicationResult:
        """Run to the end. A run that was stopped resumes; ``fresh`` starts over.

        ``executor`` None runs on this machine, within ``memory_limit``.
        """
        kind = self.input_filetype or kind_of_files(self.input_path, self.read_kwargs)
        pipeline = Pipeline(self.name, stages=[self._reader(kind), self.stage(), self._writer(kind)])
        if executor is None:
            options: dict[str, Any] = {"memory_limit": self.memory_limit} if self.memory_limit else {}
            executor = pipeline.make_executor(**options)
        result = pipeline.run(executor, fresh=fresh)
        assert result.ledger is not None
        whole = result.ledger.total()
        gone = sum(n for (stage, _), n in whole.dropped.items() if stage == self.stage().name)
        return DeduplicationResult(
            documents=whole.documents - whole.errored.total(),
            duplicates=gone,
            records=f"{self._output.rstrip('/')}/duplicates",
            output=self._output if self.perform_removal else None,
            run=result,
        )

    def _reader(self, kind: str) -> Any:
        return FORMATS[kind].reader(
            self.input_path, blocksize=self.input_blocksize, text_field=self.text_field, read_kwargs=self.read_kwargs
        )

    def _writer(self, kind: str) -> Any:
        if not self.perform_removal:
            return Identified(self._output, self.write_kwargs)
        cls: Any = FORMATS[self.output_filetype or kind].writer
        # removed documents are in the records; a pipeline with a writer can copy them to excluded/ as well
        return cls(self._output, excluded=False, write_kwargs=self.write_kwargs)
