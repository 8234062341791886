"""The stage that runs a recipe, and how to find one by name."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Self

from gristmill.near_names import did_you_mean
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Scoring
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.text.filters.score_filter import ScoreFilter, one_or_each
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier
from gristmill.stages.text.modifiers.modify import Modify
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
        text_field: str | None = None,
        changes: Mapping[str, Any] | None = None,
        keep_scores: bool = False,
    ) -> None:
        self.recipe = made_from
        self.name = made_from.name
        self.text_field = text_field
        self.changes = dict(changes or {})
        self.keep_scores = keep_scores
        self.rules = made_from.make(self.changes)
        self.fields = [_field(rule, text_field) for rule in self.rules]
        """The column that each rule reads."""
        self.inner: list[Modify | ScoreFilter] = []
        pairs = zip(self.rules, self.fields, strict=True)
        for modifies, group in groupby(pairs, lambda pair: isinstance(pair[0], DocumentModifier)):
            rules, fields = zip(*group, strict=True)
            if modifies:
                self.inner.append(Modify(rules, fields))
            else:
                self.inner.append(ScoreFilter(rules, fields, keep_scores=keep_scores))
        self.takes_paths = all(part.takes_paths for part in self.inner)

    def described(self) -> str | dict[str, Any]:
        """Return the value of ``recipe:`` in YAML, always with the version, so that it means the same later."""
        described: dict[str, Any] = {"name": f"{self.recipe.name}@{self.recipe.version}"}
        if self.text_field is not None:
            described["text_field"] = self.text_field
        if self.changes:
            described["set"] = self.changes
        if self.keep_scores:
            described["keep_scores"] = True
        return described if len(described) > 1 else str(described["name"])

    def resolved_arguments(self) -> dict[str, Any]:
        return {"text_field": one_or_each(self.fields)}

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(dict.fromkeys(self.fields))

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [name for part in self.inner for name in part.outputs()[1]]

    def made_of(self) -> Sequence[object]:
        return [part for stage in self.inner for part in (stage, *stage.made_of())]

    def check_needs(self) -> None:
        for part in self.inner:
            part.check_needs()

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


def _field(rule: Any, text_field: str | None) -> str:
    """Return the column that a rule reads. ``text_field`` is for all rules that read texts."""
    if isinstance(rule, DocumentFilter) and (text_field is None or not rule.reads_texts):
        return rule.default_field
    return text_field or "text"


def recipe(
    name: str, text_field: str | None = None, set: Mapping[str, Any] | None = None, keep_scores: bool = False
) -> RecipeStage:
    """Return a stage with all rules of a recipe, ``name`` or ``name@version``.

        recipe("gopher-quality", set={"word_count.min_words": 100, "stop_words": False})

    ``text_field`` is the column of the texts, by default "text", and "caption" in recipes for images. ``set`` changes
    arguments of rules; False skips a rule. ``keep_scores`` stores the scores of all rules.
    """
    return RecipeStage(find_recipe(name), text_field, set, keep_scores)


def find_recipe(name: str) -> Recipe:
    """Return the recipe of a name. Raise ValueError, with the most similar name, if there is none."""
    from gristmill.stages.text.recipes.published import RECIPES  # few pipelines have a recipe

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
