"""Published sets of rules by name and version."""

from gristmill.stages.text.recipes.book import RECIPES, find_recipe, recipe
from gristmill.stages.text.recipes.recipe import Recipe, Rule
from gristmill.stages.text.recipes.stage import RecipeStage

__all__ = ["RECIPES", "Recipe", "RecipeStage", "Rule", "find_recipe", "recipe"]
