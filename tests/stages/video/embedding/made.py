"""How stages of clips run in this process."""

from __future__ import annotations

import random
from typing import Any

from tests.videos.made import encoded, panned

from gristmill.stages.asynchronous import results_of
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.tasks import Task


def clip(seed: int, frames: int = 30, fps: int = 30) -> bytes:
    """A clip of a texture that moves."""
    return encoded(panned(seed, frames, random.Random(seed).uniform(1, 3)), fps=fps)


def after(stage: ProcessingStage[Any, Any], tasks: list[Task[Any]]) -> list[Any]:
    """The tasks after a stage, or after all stages of a composite."""
    for one in stage.flatten() if isinstance(stage, CompositeStage) else [stage]:
        one.check_needs()
        one.setup()
        tasks = [made for task in tasks for made in results_of(one, task)]
        one.teardown()
    return tasks
