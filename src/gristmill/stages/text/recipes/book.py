"""All recipes, and how to find one by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill.near_names import did_you_mean
from gristmill.stages.text.recipes import c4, curator, fineweb, gopher
from gristmill.stages.text.recipes.recipe import Recipe
from gristmill.stages.text.recipes.stage import RecipeStage

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
