"""What the workflows of exact and fuzzy deduplication share: files in, files out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.errors import PlanError
from gristmill.secrets import without_query
from gristmill.stages.barrier import BarrierStage
from gristmill.stages.text.io.listing import list_files
from gristmill.stages.text.io.reader import JsonlReader, ParquetReader
from gristmill.stages.text.io.writer import JsonlWriter, ParquetWriter

if TYPE_CHECKING:
    from gristmill.backends.base import Executor
    from gristmill.pipeline import RunResult

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
FORMATS = ("jsonl", "parquet")


@dataclass(frozen=True)
class DeduplicationResult:
    """What a workflow has done."""

    documents: int
    duplicates: int
    """Documents that are removed, or would be."""
    records: str
    """The folder of Parquet files with a row for each duplicate: its id, the survivor's, the cluster, similarities."""
    output: str | None
    """The folder of the documents that are left; None if none were to be removed."""
    run: RunResult

    def summary(self) -> str:
        """A table for people."""
        return self.run.summary()


class DeduplicationWorkflow:
    """Reads files, finds duplicates in them and, if that is wanted, writes the documents without them."""

    name = "deduplication"

    def __init__(
        self,
        input_path: Paths,
        output_path: str | os.PathLike[str],
        text_field: str,
        input_filetype: str | None,
        output_filetype: str | None,
        input_blocksize: int | str | None,
        perform_removal: bool,
        read_kwargs: dict[str, Any] | None,
        write_kwargs: dict[str, Any] | None,
        memory_limit: int | str | None,
    ) -> None:
        for name, given in (("input_filetype", input_filetype), ("output_filetype", output_filetype)):
            if given is not None and given not in FORMATS:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, FORMATS))}, not {given!r}.")
        if type(text_field) is not str:
            raise ValueError(f"text_field must be the name of a field, not {text_field!r}.")
        if type(perform_removal) is not bool:
            raise ValueError(f"perform_removal must be True or False, not {perform_removal!r}.")
        self.input_path = input_path
        self.output_path = os.fspath(output_path)
        self.text_field = text_field
        self.input_filetype = input_filetype
        self.output_filetype = output_filetype
        self.input_blocksize = input_blocksize
        self.perform_removal = perform_removal
        self.read_kwargs = dict(read_kwargs or {})
        self.write_kwargs = dict(write_kwargs or {})
        self.memory_limit = memory_limit

    def stage(self) -> BarrierStage:
        """The stage that finds and removes."""
        raise NotImplementedError

    def run(self, executor: Executor | None = None, *, fresh: bool = False) -> DeduplicationResult:
        """Do it. A run that was stopped goes on where it was; ``fresh`` starts over.

        ``executor`` None runs on this machine, within ``memory_limit``.
        """
        from gristmill.pipeline import Pipeline

        kind = self.input_filetype or self._kind()
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
            records=f"{self.output_path.rstrip('/')}/duplicates",
            output=self.output_path if self.perform_removal else None,
            run=result,
        )

    def _kind(self) -> str:
        ends = {"jsonl": JsonlReader.extensions, "parquet": ParquetReader.extensions}
        storage = dict(self.read_kwargs.get("storage_options") or {})
        files = list_files(self.input_path, (*ends["jsonl"], *ends["parquet"]), storage)
        found = {
            kind: sum(without_query(file.path).lower().endswith(end) for file in files) for kind, end in ends.items()
        }
        if all(found.values()):
            raise PlanError(
                f"{self.input_path} holds {found['jsonl']} JSONL and {found['parquet']} Parquet files: say by "
                "input_filetype which of them are meant."
            )
        return max(FORMATS, key=lambda kind: found[kind])

    def _reader(self, kind: str) -> Any:
        cls = JsonlReader if kind == "jsonl" else ParquetReader
        return cls(
            self.input_path, blocksize=self.input_blocksize, text_field=self.text_field, read_kwargs=self.read_kwargs
        )

    def _writer(self, kind: str) -> Any:
        if not self.perform_removal:
            from gristmill.stages.deduplication.identified import Identified

            return Identified(self.output_path, self.write_kwargs)
        cls = JsonlWriter if (self.output_filetype or kind) == "jsonl" else ParquetWriter
        # what is removed is in the records: who wants a copy of it as well makes a pipeline
        return cls(self.output_path, excluded=False, write_kwargs=self.write_kwargs)
