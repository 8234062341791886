"""The stage that runs a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.filters.score_filter import ScoreFilter
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier
from gristmill.stages.text.modifiers.modify import Modify
from gristmill.stages.text.recipes.recipe import Recipe
from gristmill.tasks import DocumentBatch


class RecipeStage(ProcessingStage[DocumentBatch, DocumentBatch], builtin=True):
    """Runs the rules of a recipe in order. A rule drops the documents that it does not keep.

    ``keep_scores`` stores the score of each rule under ``<rule>_score``.
    """

    accounts_for_documents = True
    row_wise = True
    needs_all_fields = True

    def __init__(
        self,
        made_from: Recipe,
        text_field: str = "text",
        changes: Mapping[str, Any] | None = None,
        keep_scores: bool = False,
    ) -> None:
        self.recipe = made_from
        self.name = made_from.name
        self.text_field = text_field
        self.changes = dict(changes or {})
        self.keep_scores = keep_scores
        self.rules = made_from.make(self.changes)
        self.inner: list[Modify | ScoreFilter] = []
        for modifies, rules in groupby(self.rules, lambda rule: isinstance(rule, DocumentModifier)):
            if modifies:
                self.inner.append(Modify(list(rules), text_field))
            else:
                self.inner.append(ScoreFilter(list(rules), text_field, keep_scores=keep_scores))
        self.takes_paths = all(part.takes_paths for part in self.inner)

    def described(self) -> str | dict[str, Any]:
        """Return the value of ``recipe:`` in YAML, always with the version, so that it means the same later."""
        described: dict[str, Any] = {"name": f"{self.recipe.name}@{self.recipe.version}"}
        if self.text_field != "text":
            described["text_field"] = self.text_field
        if self.changes:
            described["set"] = self.changes
        if self.keep_scores:
            described["keep_scores"] = True
        return described if len(described) > 1 else str(described["name"])

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [name for part in self.inner for name in part.outputs()[1]]

    def made_of(self) -> Sequence[object]:
        return [part for stage in self.inner for part in (stage, *stage.made_of())]

    def preload(self) -> None:
        for part in self.inner:
            part.preload()

    def setup(self, worker_metadata: Any = None) -> None:
        for part in self.inner:
            part.setup()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        for part in self.inner:
            task = part.process(task)
        return task
