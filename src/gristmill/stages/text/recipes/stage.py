"""The stage that runs a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gristmill.kernels import features
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.text.filters.score_filter import numbers, texts_of
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier
from gristmill.stages.text.modifiers.modify import Modify
from gristmill.stages.text.recipes.recipe import Recipe
from gristmill.tasks import DocumentBatch


class RecipeStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Runs the rules of a recipe in order: what a rule does not keep is dropped with the rule as the reason."""

    def __init__(self, made_from: Recipe, text_field: str = "text", changes: Mapping[str, Any] | None = None) -> None:
        self.recipe = made_from
        self.name = made_from.name
        self.text_field = text_field
        self.changes = dict(changes or {})
        self.rules = made_from.make(self.changes)

    def described(self) -> str | dict[str, Any]:
        """What stands behind ``recipe:`` in YAML; the version is always there, so that it means the same later."""
        name = f"{self.recipe.name}@{self.recipe.version}"
        if not self.changes and self.text_field == "text":
            return name
        described: dict[str, Any] = {"name": name}
        if self.text_field != "text":
            described["text_field"] = self.text_field
        return described | ({"set": self.changes} if self.changes else {})

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field] if any(isinstance(one, DocumentModifier) for one in self.rules) else []

    def parts(self) -> Sequence[object]:
        return self.rules

    def preload(self) -> None:
        # All kernels together first, so that compiling them is said once.
        features.preload({group for one in self.rules if isinstance(one, DocumentFilter) for group in one.needs})
        for one in self.rules:
            one.preload()

    def setup(self, worker_metadata: Any = None) -> None:
        for one in self.rules:
            one.setup()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        for one in self.rules:
            if isinstance(one, DocumentModifier):
                task = Modify(one, self.text_field).process(task)
                continue
            scores = one.score_batch(texts_of(task, self.text_field))
            mask = np.asarray(one.keep_batch(scores), dtype=bool)
            if not mask.all():
                gone = scores[~mask]
                task = task.keep(mask, one.reasons(gone), numbers(gone))
        return task
