"""All recipes, and how one is found by its name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from gristmill.stages.text.recipes import c4, curator, fineweb, gopher
from gristmill.stages.text.recipes.recipe import Recipe
from gristmill.stages.text.recipes.stage import RecipeStage

RECIPES: tuple[Recipe, ...] = (
    *(gopher.QUALITY, gopher.REPETITION, c4.C4),
    *(fineweb.LATER, fineweb.FINEWEB, curator.ENGLISH),
)
"""Each name may be there in several versions; the last is the one that is meant by the name alone."""


def recipe(
    name: str, text_field: str = "text", set: Mapping[str, Any] | None = None, keep_scores: bool = False
) -> RecipeStage:
    """One stage with all rules of a recipe, ``name`` or ``name@version``.

        recipe("gopher-quality", set={"word_count.min_words": 100, "stop_words": False})

    ``set`` gives other arguments to rules; False leaves a rule out. ``keep_scores`` stores the scores of all rules
    beside the text.
    """
    return RecipeStage(find_recipe(name), text_field, set, keep_scores)


def find_recipe(name: str) -> Recipe:
    """The recipe of a name; ValueError with the nearest one if there is none."""
    plain, at, version = name.partition("@")
    found = [one for one in RECIPES if one.name == plain]
    if not found:
        names = list(dict.fromkeys(one.name for one in RECIPES))
        close = get_close_matches(plain.lower(), names, 1)
        hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(names)}."
        raise ValueError(f"recipe {plain!r} is not known. {hint}")
    if not at:
        return found[-1]
    for one in found:
        if str(one.version) == version:
            return one
    versions = ", ".join(f"{one.name}@{one.version}" for one in found)
    raise ValueError(f"recipe {plain!r} has no version {version!r}. There is: {versions}")
