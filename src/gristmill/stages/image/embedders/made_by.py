"""Which model made a column of embeddings, so that what reads them can refuse those of another one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.models.vision.heads import space_of
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

MODEL_KEY, SPACE_KEY = "gristmill.model", "gristmill.embedding_space"
"""Keys in the metadata of a column of embeddings."""


@dataclass(frozen=True)
class MadeBy:
    """The model of a column of embeddings."""

    model: str
    """Its name, as the user gave it."""
    space: str
    """What kind of model it is, by its configuration."""

    def field(self, name: str, kind: pa.DataType) -> pa.Field:
        """An Arrow field for such embeddings."""
        import pyarrow as pa

        return pa.field(name, kind, metadata={MODEL_KEY: self.model, SPACE_KEY: self.space})


class EmbedsImages(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage that makes a column of embeddings of images."""

    @property
    @abstractmethod
    def embedded_by(self) -> tuple[str, MadeBy]:
        """The column, and the model of its embeddings."""


def check_before(reader: str, field: str, wanted: str, before: Sequence[ProcessingStage[Any, Any]]) -> None:
    """Raise a `ModelError` if a stage before ``reader`` makes the embeddings in ``field`` with another model.

    ``wanted`` is a name such as "ViT-L/14", or that of a checkpoint. Embeddings that no stage of ours makes are
    checked when they come: see `check_column`.
    """
    for stage in reversed(before):
        if isinstance(stage, EmbedsImages) and stage.embedded_by[0] == field:
            _check(reader, field, wanted, stage.embedded_by[1], f"stage {stage.name!r}")
            return
        if field in stage.outputs()[1]:
            if stage.builtin:
                raise ModelError(
                    f"stage {reader!r} needs embeddings of images by {wanted} in {field!r}, but stage {stage.name!r} "
                    f"makes that column.\n    add ImageEmbeddingStage(model=...) before it, with that model."
                )
            return


def check_column(reader: str, column: pa.Field, wanted: str) -> None:
    """Raise a `ModelError` if a column names another model than ``wanted``."""
    notes = {key.decode(): value.decode() for key, value in (column.metadata or {}).items()}
    if MODEL_KEY in notes and SPACE_KEY in notes:
        _check(reader, column.name, wanted, MadeBy(notes[MODEL_KEY], notes[SPACE_KEY]), "its model")


def _check(reader: str, field: str, wanted: str, made: MadeBy, source: str) -> None:
    space = space_of(wanted)
    if made.model == wanted or (space is not None and made.space == space):
        return
    raise ModelError(
        f"stage {reader!r} reads embeddings of {wanted}, but those in {field!r} are of {made.model} ({made.space}).\n"
        f"    give {source} that model, or name the weights that belong to the other one."
    )
