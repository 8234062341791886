"""The columns after each stage, as far as stages declare them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, get_args

from gristmill.near_names import near
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io.reader.sample import first_keys
from gristmill.tasks import DocumentBatch


@dataclass(frozen=True)
class Columns:
    """The columns at one point of a pipeline.

    They are *open* where stages may have made columns that they do not declare, for example after a reader without
    ``fields``. Only where they are closed is a column known to be missing.
    """

    made_by: dict[str, str] = field(default_factory=dict)
    """The known columns, each with the stage that made it."""
    open: bool = True
    named_by: str = "no stage"
    """The last stage that declared columns."""

    @classmethod
    def of_table(cls, names: Iterable[str], source: str) -> Columns:
        return cls(dict.fromkeys(names, source), open=False, named_by=source)

    def after(self, stage: ProcessingStage[Any, Any], label: str) -> Columns:
        """Return the columns after ``stage``."""
        if not stage.declares_outputs():
            return Columns(self.made_by, open=True, named_by=self.named_by)
        made = dict.fromkeys(stage.outputs()[1], label)
        if stage.only_outputs:
            return Columns(made, open=False, named_by=label)
        if _makes_the_table(stage):
            return Columns(made, open=not made, named_by=label)
        removed = set(stage.removes())
        passed = {name: maker for name, maker in self.made_by.items() if name not in removed}
        return Columns({**passed, **made}, open=self.open, named_by=label if made else self.named_by)

    def missing(self, needed: Iterable[str], takes_paths: bool = False) -> list[str]:
        """Return the needed columns that are known to be missing. A path is there if its first column is."""
        if self.open:
            return []
        lacking = [name for name in needed if name not in self.made_by]
        return [name for name in lacking if not (takes_paths and any(key in self.made_by for key in first_keys(name)))]

    def near(self, name: str) -> str | None:
        """Return an existing column that ``name`` may have meant."""
        return near(name, self.made_by)


def _makes_the_table(stage: ProcessingStage[Any, Any]) -> bool:
    """Return whether the stage reads its documents from elsewhere, so that no columns pass through it."""
    taken = stage.input_type()
    return taken is not None and not any(_may_have_columns(kind) for kind in get_args(taken) or (taken,))


def _may_have_columns(kind: Any) -> bool:
    return issubclass(DocumentBatch, kind) or issubclass(kind, DocumentBatch)
