"""Published sets of rules by name and version."""

from gristmill.stages.text.recipes.recipe import Recipe, Rule
from gristmill.stages.text.recipes.stage import RECIPES, RecipeStage, find_recipe, recipe

__all__ = ["RECIPES", "Recipe", "RecipeStage", "Rule", "find_recipe", "recipe"]
