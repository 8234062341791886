"""The columns that a reader takes out of files, by what the later stages of its pipeline need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Stages
from gristmill.stages.text.io.reader.sample import first_keys
from gristmill.tasks import DocumentBatch


@dataclass(frozen=True)
class Wanted:
    """The columns of the batches that a reader makes."""

    text_field: str | None = "text"
    """Must exist and be a string; None: no field must."""
    columns: Sequence[str] | None = None
    """None: all columns of the file."""
    fields: Sequence[str] | None = None
    """The fields that documents are reduced to; None: all."""
    if_there: Sequence[str] = ()
    """Those of the columns that a batch does not have if no document of it does."""
    required: Sequence[str] = ()
    """Where all columns are taken: those that every batch has, as nulls if need be."""
    if_empty: Sequence[str] = ()
    """Where all columns are taken: those of a batch without documents, so that stages find the ones they name."""

    def for_stages(
        self, stages: Stages, needed_by: Callable[[ProcessingStage[Any, Any]], Sequence[str] | None]
    ) -> Wanted:
        """The columns that these stages need, up to the one that writes them.

        ``needed_by`` returns the columns that have to be read for a stage; None: all.
        """
        needed: dict[str, None] = {}
        optional: dict[str, None] = {}
        required: dict[str, None] = {}
        made: set[str] = set()
        takes_all = is_open = False
        columns: list[str] | None = None
        for stage in stages:
            names = needed_by(stage)
            takes_all |= names is None
            looked_at = stage.looks_at()
            if stage.takes_paths:
                paths = [name for name in names or () if "." in name]
                names = [name for name in names or () if "." not in name]
                looked_at = [*looked_at, *(key for path in paths for key in first_keys(path))]
            needed.update(dict.fromkeys(name for name in names or () if name not in made))
            optional.update(dict.fromkeys(name for name in looked_at if name not in made))
            if not (stage.builtin or is_open):
                required.update(dict.fromkeys(name for name in stage.inputs()[1] if name not in made))
            if stage.output_type() not in (None, DocumentBatch):
                columns = None if takes_all else list(needed | optional)
                break
            if stage.declares_outputs():
                made.update(name for name in stage.outputs()[1] if name not in needed)
            else:  # it may make any column
                is_open = True
        if_there = () if columns is None else tuple(name for name in optional if name not in needed)
        return replace(self, columns=columns, if_there=if_there, required=tuple(required))

    def to_read(self) -> tuple[list[str] | None, list[str]]:
        """The columns that are read of a table, None for all, and those that a batch of it has in any case."""

        def kept(names: Sequence[str]) -> list[str]:
            return [name for name in dict.fromkeys(names) if self.fields is None or name in self.fields]

        if self.columns is None:
            return None if self.fields is None else list(self.fields), kept(self.required)
        text = [self.text_field] if self.text_field else []
        return kept([*self.columns, *text]), [name for name in self.columns if name not in self.if_there]
