"""A bridge that finds no cluster starts one of its own and leaves nothing of it behind."""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import pytest

from gristmill.backends.ray_data import RayDataExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.function_definitions import processing_stage
from gristmill.tasks import Task


@dataclass
class Number(Task[int]):
    data: int = 0


@processing_stage
def twice(task: Number) -> list[Number]:
    return [Number(data=task.data), Number(data=-task.data)]


@processing_stage
def double(task: Number) -> Number:
    return Number(data=2 * task.data)


@pytest.mark.timeout(150)
def test_a_cluster_that_is_started_for_a_run_ends_with_it(monkeypatch):
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'gristmill[ray]'")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    result = Pipeline("p", stages=[twice, double]).run(RayDataExecutor(), [Number(data=n) for n in range(3)])
    assert [t.data for t in result] == [0, 0, 2, -2, 4, -4]
    assert not ray.is_initialized()
    assert not [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
