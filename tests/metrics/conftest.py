"""Snapshots of a run that did not happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gristmill.scheduling.snapshot import Snapshot, StepSnapshot

STEP = StepSnapshot("step", True, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, False)
MOMENT = Snapshot(0, (), None, 0, 0, 512 << 20, 0, None, False, 0, 0, 0, ())


@pytest.fixture
def step() -> Callable[..., StepSnapshot]:
    """A step with one dedicated busy worker that has done nothing, except for the given fields."""
    return lambda name="step", **known: replace(STEP, name=name, **known)


@pytest.fixture
def moment() -> Callable[..., Snapshot]:
    """A moment ``at`` seconds after the start."""
    return lambda at, *steps, **known: replace(MOMENT, now_us=round(at * 1e6), steps=steps, **known)
