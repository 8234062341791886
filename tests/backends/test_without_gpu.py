"""Stages for GPUs where there is none."""

from __future__ import annotations

import pytest

from gristmill import LocalExecutor, Pipeline, ProcessingStage, Resources
from gristmill.errors import PlanError
from gristmill.stages.core import WorkerMetadata
from gristmill.tasks import Task


class Number(Task[int]):
    @property
    def num_items(self) -> int:
        return 1


class OnGpu(ProcessingStage[Number, Number]):
    """Returns the number of GPUs of its worker."""

    resources = Resources(cpus=1, gpus=0.5)

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        assert worker_metadata is not None
        self.gpus = len(worker_metadata.gpus)

    def process(self, task: Number) -> Number:
        return Number(data=self.gpus, dataset_name="")


class OnEither(OnGpu):
    resources_without_gpu = Resources(cpus=2)


def gpus_of(stage: OnGpu, count: int) -> list[int]:
    executor = LocalExecutor(config={"num_cpus": 2, "num_gpus": count, "view": "off"})
    tasks = [Number(data=0, dataset_name="") for _ in range(3)]
    result = Pipeline("p", stages=[stage]).run(executor, initial_tasks=tasks)
    return [task.data for task in result.outputs or ()]


def test_a_stage_that_runs_without_gpus_gets_one_where_there_is_one() -> None:
    assert gpus_of(OnEither(), 1) == [1, 1, 1]
    assert gpus_of(OnEither(), 0) == [0, 0, 0]


def test_a_stage_that_needs_a_gpu_does_not_run_without() -> None:
    with pytest.raises(PlanError, match="gpus"):
        gpus_of(OnGpu(), 0)


def test_a_plan_keeps_other_stages_as_they_are() -> None:
    plan = Pipeline("p", stages=[OnGpu(), OnEither()]).plan()
    assert plan.on_gpus(3) is plan
    assert [step.resources for step in plan.on_gpus(0).steps] == [Resources(gpus=0.5), Resources(cpus=2)]
