"""Where a semantic deduplication has its embeddings from: the input, or files that it makes of texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gristmill.errors import PipelineFailed
from gristmill.pipeline import Pipeline
from gristmill.pipeline.fingerprint import describe_stage
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.semantic.embedded import RestoreDocumentIds, SelectForDeduplication
from gristmill.stages.deduplication.semantic.embeddings import StoreEmbeddingsStage
from gristmill.stages.deduplication.semantic.parts import check_fields, length_of_first
from gristmill.stages.text.io import ParquetReader, ParquetWriter
from gristmill.stages.text.io.reader.base import FileReader

if TYPE_CHECKING:
    from gristmill.backends.base import Executor
    from gristmill.stages.text.embedders.base import EmbeddingCreatorStage
    from gristmill.workflows.semantic import SemanticDeduplicationWorkflow


class EmbeddingFiles(ABC):
    """Files of embeddings."""

    are_made: bool
    """Whether the run makes them."""
    text_field: str | None = None
    """The field of the input without which a record is set aside."""

    @abstractmethod
    def check(self, stage: StoreEmbeddingsStage) -> None:
        """Raise `PlanError` if the input lacks a field. Called before anything is written."""

    @abstractmethod
    def make(self, executor: Executor, stage: StoreEmbeddingsStage, fresh: bool) -> int:
        """Make the files that are not made yet; ``fresh`` makes all. Return the number of unreadable records."""

    @abstractmethod
    def reader(self) -> FileReader:
        """Return a reader of the files."""

    @abstractmethod
    def stages(self) -> Sequence[ProcessingStage[Any, Any]]:
        """Return stages between the reader and the store."""

    @abstractmethod
    def described(self) -> list[dict[str, Any]]:
        """Return what belongs to the fingerprint of a run."""

    @abstractmethod
    def paths(self) -> dict[str, str]:
        """Return the folder for the result of a run."""


class GivenEmbeddings(EmbeddingFiles):
    """The input has the embeddings."""

    are_made = False

    def __init__(self, flow: SemanticDeduplicationWorkflow) -> None:
        self.flow = flow

    def check(self, stage: StoreEmbeddingsStage) -> None:
        check_fields(self.reader(), stage)
        if self.flow.embedding_dim is None:
            length_of_first(self.reader(), stage)

    def make(self, executor: Executor, stage: StoreEmbeddingsStage, fresh: bool) -> int:
        return 0

    def reader(self) -> FileReader:
        return self.flow.reader()

    def stages(self) -> Sequence[ProcessingStage[Any, Any]]:
        return ()

    def described(self) -> list[dict[str, Any]]:
        return []

    def paths(self) -> dict[str, str]:
        return {}


class TextEmbeddings(EmbeddingFiles):
    """Parquet files in the folder ``path``, with the embeddings that a stage makes of texts.

    They are made block by block, so that a run that was stopped resumes, and stay after the run: another run with the
    same model and input uses them again.
    """

    are_made = True

    def __init__(self, flow: SemanticDeduplicationWorkflow, embedder: EmbeddingCreatorStage, path: str) -> None:
        self.flow = flow
        self.embedder = embedder
        self.text_field = embedder.text_field
        self.path = path

    def check(self, stage: StoreEmbeddingsStage) -> None:
        check_fields(self.flow.reader(), stage, self.text_field)

    def make(self, executor: Executor, stage: StoreEmbeddingsStage, fresh: bool) -> int:
        select = SelectForDeduplication(stage.inputs()[1])
        stages: list[ProcessingStage[Any, Any]] = [
            self.flow.reader(self.text_field),
            self.embedder,
            select,
            ParquetWriter(self.path, excluded=False),
        ]
        result = Pipeline("text semantic deduplication: embeddings", stages=stages).run(executor, fresh=fresh)
        if not result.ok:  # the executor ignores failures, but what comes next needs all of it
            raise PipelineFailed(result.failure_report(), result)
        assert result.ledger is not None
        return result.ledger.total().errored.total()

    def reader(self) -> FileReader:
        return ParquetReader(self.path, text_field=None)

    def stages(self) -> Sequence[ProcessingStage[Any, Any]]:
        return (RestoreDocumentIds(),)

    def described(self) -> list[dict[str, Any]]:
        return [describe_stage(self.embedder)]

    def paths(self) -> dict[str, str]:
        return {"embeddings": self.path}
