"""All recipes, how to find one by name, and the stage that runs one."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Self

from gristmill.near_names import did_you_mean
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Scoring
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.text.filters.score_filter import ScoreFilter
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier
from gristmill.stages.text.modifiers.modify import Modify
from gristmill.stages.text.recipes import c4, curator, fineweb, gopher
from gristmill.stages.text.recipes.recipe import Recipe
from gristmill.tasks import DocumentBatch


class RecipeStage(ProcessingStage[DocumentBatch, DocumentBatch], Scoring, builtin=True):
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

    def scored_rules(self) -> Sequence[tuple[DocumentFilter, bool]]:
        return [rule for part in self.inner if isinstance(part, ScoreFilter) for rule in part.scored_rules()]

    def with_scored_rules(self, rules: Sequence[DocumentFilter]) -> Self:
        clone = copy.copy(self)
        left = list(rules)
        clone.inner = []
        for part in self.inner:
            if isinstance(part, ScoreFilter):
                mine, left = left[: len(part.filters)], left[len(part.filters) :]
                clone.inner.append(part.with_scored_rules(mine))
            else:
                clone.inner.append(part)
        return clone

    def after_scored_rule(self, number: int) -> Sequence[ProcessingStage[Any, Any]]:
        for k, part in enumerate(self.inner):
            if isinstance(part, ScoreFilter):
                if number < len(part.filters):
                    return [*part.after_scored_rule(number), *self.inner[k + 1 :]]
                number -= len(part.filters)
        return []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        for part in self.inner:
            task = part.process(task)
        return task


RECIPES: tuple[Recipe, ...] = (
    *(gopher.QUALITY, gopher.REPETITION, c4.C4),
    *(fineweb.LATER, fineweb.FINEWEB, curator.ENGLISH),
)
"""A name may have several versions. The name alone means the last one."""


def recipe(
    name: str, text_field: str = "text", set: Mapping[str, Any] | None = None, keep_scores: bool = False
) -> RecipeStage:
    """Return a stage with all rules of a recipe, ``name`` or ``name@version``.

        recipe("gopher-quality", set={"word_count.min_words": 100, "stop_words": False})

    ``set`` changes arguments of rules; False skips a rule. ``keep_scores`` stores the scores of all rules.
    """
    return RecipeStage(find_recipe(name), text_field, set, keep_scores)


def find_recipe(name: str) -> Recipe:
    """Return the recipe of a name. Raise ValueError, with the most similar name, if there is none."""
    plain, at, version = name.partition("@")
    found = [one for one in RECIPES if one.name == plain]
    if not found:
        names = list(dict.fromkeys(one.name for one in RECIPES))
        hint = did_you_mean(plain, names, f"There are: {', '.join(names)}.")
        raise ValueError(f"recipe {plain!r} is not known.{hint}")
    if not at:
        return found[-1]
    for one in found:
        if str(one.version) == version:
            return one
    versions = ", ".join(f"{one.name}@{one.version}" for one in found)
    raise ValueError(f"recipe {plain!r} has no version {version!r}. There is: {versions}")
