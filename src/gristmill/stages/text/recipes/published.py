"""All recipes."""

from __future__ import annotations

from gristmill.stages.text.recipes import c4, curator, fineweb, gopher, image_text
from gristmill.stages.text.recipes.recipe import Recipe

RECIPES: tuple[Recipe, ...] = (
    *(gopher.QUALITY, gopher.REPETITION, c4.C4),
    *(fineweb.LATER, fineweb.FINEWEB, curator.ENGLISH),
    *(image_text.LAION, image_text.DATACOMP),
)
"""A name may have several versions. The name alone means the last one."""
