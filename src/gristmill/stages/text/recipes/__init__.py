"""Published sets of rules by name and version."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in
from gristmill.stages.text.recipes.recipe import Recipe, Rule
from gristmill.stages.text.recipes.stage import RecipeStage, find_recipe, recipe

if TYPE_CHECKING:
    from gristmill.stages.text.recipes.published import RECIPES

__getattr__ = names_in({"RECIPES": f"{__name__}.published"})

__all__ = ["RECIPES", "Recipe", "RecipeStage", "Rule", "find_recipe", "recipe"]
