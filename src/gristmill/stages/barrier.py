"""Stages that must have seen all documents before they let the first one go."""

from __future__ import annotations

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
class Looked:
    """What is known of the input before it is read: by its size, and by some of its documents."""

    documents: int
    text_bytes: int
    seconds_each: float
    """To read a document and make its keys."""
    keys: int = 0
    """Rows of keys: of pieces of documents there are more than documents."""
    stored_bytes: int = 0
    """Of the documents as they are put aside, with all fields that later stages need."""
    block_bytes: int = 16 << 20
    """How much a worker reads at a time."""
    stream_bytes: int = 0
    """How much it reads at a time of compressed files, 0 if there are none."""


@dataclass(frozen=True)
class Forecast:
    """What a stage will take."""

    documents: int
    text_bytes: int
    memory_bytes: int
    disk_bytes: int
    seconds: float
    words: str = ""
    """More, to be said behind the size of the input."""


class BarrierContext(Protocol):
    """What a barrier is given to decide with, when all keys are there."""

    folder: Folder
    """Where the keys are, one file for each batch; whatever is made on the way goes here too."""
    records: Folder
    """Where the records of what was decided go, for the user."""
    memory: int
    """Bytes that all of it may take at the same time."""
    workers: int
    notes: list[str]
    """What the user should know in the end, line by line."""

    def run(self, name: str, stage: ProcessingStage[Any, Any], tasks: Sequence[Task[Any]], size: int) -> list[Any]:
        """What the stage makes of the tasks, on the executor; at once, here, if there is little to do.

        ``size`` is how many bytes it works on.
        """

    def few(self, places: Sequence[tuple[str, int, str]], field: str) -> list[str] | None:
        """The texts of a few documents, each by its part, its row there and its id; None if that takes `again`."""

    def again(self, name: str, stage: ProcessingStage[Any, Any], parts: Sequence[str]) -> None:
        """Have the stage process the batches of these parts once more, with the documents in them."""


class BarrierStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage at which a pipeline is cut in two.

    In front of the cut the `keys` of each batch are put aside, and the documents too, unless they are as they were
    read. When all are there it `decide`s. Behind the cut `after_barrier` takes its place.
    """

    accounts_for_documents = True
    key_columns: Sequence[str] = ("text",)
    """What it looks at in documents."""
    indifferent = ("memory_limit", "device", "bands_per_iteration")
    memory_limit: int | str | None = None
    """For the work between the phases: bytes, or a text as in "4GB". None: what the executor may use."""
    stays: Sequence[str] = ()
    """Files in its folder that stay when the run has ended: `after_barrier` needs them to make a lost part again."""
    device: str | None = None
    """Where keys are made: "cpu", "cuda", or None for a GPU if one is there and is of use."""
    cautions: Sequence[str] = ()
    """What the user should know of its arguments before it starts, line by line."""
    decides_with: ClassVar[tuple[str, ...]] = ()
    """Modules that `decide` imports: they are loaded while the first half of the pipeline runs."""

    @property
    def gpu_is_of_use(self) -> bool:
        """Whether keys can be made on a GPU, and sooner than on CPUs if those are few."""
        return False

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.key_columns)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    @abstractmethod
    def keys(self, batch: DocumentBatch) -> pa.Table:
        """What is to be remembered of documents: a row for each."""

    @abstractmethod
    def decide(self, context: BarrierContext) -> None:
        """Work out what is to be done behind the cut, and write it down."""

    @abstractmethod
    def after_barrier(self, folder: Folder, records: Folder) -> ProcessingStage[DocumentBatch, DocumentBatch]:
        """The stage that does what was decided."""

    def forecast(self, looked: Looked, memory: int, workers: int, stored: bool) -> Forecast | None:
        """What it will take. ``stored``: documents are put aside as well."""
        return None

    def process(self, task: DocumentBatch) -> Result:
        raise TypeError(f"{self.name!r} needs all documents of a pipeline: it cannot process a batch by itself.")
