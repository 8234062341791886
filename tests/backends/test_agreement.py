"""A simulation of what a run measured takes as long as the run did."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import fmean

import pytest

from gristmill.scheduling.simulator import simulate
from gristmill.stages.core import ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.tasks import Task

pytestmark = pytest.mark.alone  # the time that a run takes is compared


@dataclass
class Number(Task[int]):
    data: int = 0


class Sleep(ProcessingStage[Number, Number]):
    def __init__(self, name, seconds, gpus=0, parts=1):
        self.name, self.seconds, self.parts = name, seconds, parts
        self.resources = Resources(gpus=gpus)

    def process(self, task):
        time.sleep(self.seconds)
        return [Number(data=task.data) for _ in range(self.parts)]


class Model(Sleep):
    def setup(self, worker_metadata=None):
        time.sleep(2.0)


def test_a_simulated_run_takes_as_long_as_the_real_one(run):
    stages = [
        Sleep("split", 0.05, parts=3),
        Model("slow", 0.3, gpus=1),
        Sleep("medium", 0.15, gpus=1),
        Sleep("end", 0.02),
    ]
    result = run(stages, [Number(data=i) for i in range(16)], num_cpus=8, num_gpus=4, keep=False)
    real = result.record.last_output_s - result.record.loaded_s
    simulated = [simulate(result.load(), seed) for seed in range(5)]
    ratio = fmean(x.makespan_s for x in simulated) / real
    assert 0.85 < ratio < 1.15, f"{ratio:.2f} times {real:.2f} s"
    assert all([stage.tasks_done for stage in x.stages] == [16, 48, 48, 48] for x in simulated)
