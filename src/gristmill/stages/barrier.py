"""Stages that must see all documents before they pass on the first one."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gristmill.stages.core import ProcessingStage, Result
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch, Task

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = ".keys"
"""How the names of files end that hold the keys of a batch."""


@dataclass(frozen=True)
class InputEstimate:
    """An estimate of the input before it is read, by its size and some of its documents."""

    documents: int
    text_bytes: int
    seconds_each: float
    """The time to read one document and make its keys."""
    keys: int = 0
    """Rows of keys: more than documents where these are split into pieces."""
    stored_bytes: int = 0
    """The size of the documents as they are stored, with all fields that later stages need."""
    block_bytes: int = 16 << 20
    """How much a worker reads at a time."""
    stream_bytes: int = 0
    """How much it reads at a time of compressed files, 0 if there are none."""


@dataclass(frozen=True)
class Forecast:
    """The resources that a stage is expected to need."""

    documents: int
    text_bytes: int
    """0 if it is not text."""
    memory_bytes: int
    disk_bytes: int
    seconds: float
    words: str = ""
    """Text that is printed after the size of the input."""


class BarrierContext(Protocol):
    """The keys, files and services that a barrier gets once all keys exist."""

    folder: Folder
    """The folder of the keys, one file for each batch, and of intermediate files."""
    records: Folder
    """The folder of the records of decisions, for the user."""
    memory: int
    """The bytes that all of the work may take at the same time."""
    workers: int
    notes: list[str]
    """Lines for the user, printed at the end."""

    def run(self, name: str, stage: ProcessingStage[Any, Any], tasks: Sequence[Task[Any]], size: int) -> list[Any]:
        """Run the stage on the tasks and return its outputs. Little work is done in this process, more on the executor.

        ``size`` is the number of bytes that it works on.
        """

    def few(self, places: Sequence[tuple[str, int, str]], field: str) -> list[str] | None:
        """The texts of a few documents, each by its part, its row there and its id; None if that takes `again`."""

    def again(self, name: str, stage: ProcessingStage[Any, Any], parts: Sequence[str]) -> None:
        """Have the stage process the batches of these parts once more, with the documents in them."""


class BarrierStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage that splits a pipeline in two.

    The first half stores the `keys` of each batch, and the documents too, unless they can be read again unchanged.
    When all keys exist, the stage `decide`s. In the second half `after_barrier` takes its place.
    """

    accounts_for_documents = True
    key_columns: Sequence[str] = ("text",)
    """The columns of documents that the keys are made of."""
    indifferent: ClassVar[tuple[str, ...]] = ("memory_limit", "device", "bands_per_iteration")
    memory_limit: int | str | None = None
    """For the work between the phases: bytes, or a text as in "4GB". None: what the executor may use."""
    stays: Sequence[str] = ()
    """Files in its folder that stay when the run has ended: `after_barrier` needs them to rebuild a lost part."""
    cache_path: str | os.PathLike[str] | None = None
    """The folder for files that later runs can use again, if the user gave one."""
    device: str | None = None
    """Where keys are made: "cpu", "cuda", or None for a GPU if one exists and is faster."""
    cautions: Sequence[str] = ()
    """Warnings about its arguments, printed before it starts."""
    decides_with: ClassVar[tuple[str, ...]] = ()
    """Modules that `decide` imports: they are loaded while the first half of the pipeline runs."""

    @property
    def gpu_is_useful(self) -> bool:
        """Whether keys can be made on a GPU, faster than on a few CPUs."""
        return False

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.key_columns)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    @abstractmethod
    def keys(self, batch: DocumentBatch) -> pa.Table:
        """Return the keys of documents, one row or several for each."""

    @abstractmethod
    def decide(self, context: BarrierContext) -> None:
        """Decide what the second half does, and store the decision."""

    @abstractmethod
    def after_barrier(self, folder: Folder, records: Folder) -> ProcessingStage[DocumentBatch, DocumentBatch]:
        """Return the stage of the second half that carries out the decision."""

    def forecast(self, estimate: InputEstimate, memory: int, workers: int, stored: bool) -> Forecast | None:
        """Return the expected resources. ``stored``: documents are stored as well."""
        return None

    def process(self, task: DocumentBatch) -> Result:
        raise TypeError(f"{self.name!r} needs all documents of a pipeline: it cannot process a batch by itself.")
