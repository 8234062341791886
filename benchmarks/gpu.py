"""GPU stages on a real GPU: shares of it, memory declared in GB, and how busy the workers are. Needs torch and CUDA.

python benchmarks/gpu.py
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any

import numpy

from gristmill.backends.local import LocalExecutor
from gristmill.errors import PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage, WorkerMetadata
from gristmill.stages.resources import Resources
from gristmill.tasks import Task

SIZE = 1024


@dataclass
class Batch(Task[Any]):
    data: Any = None
    seed: int = 0
    where: str = ""
    share: float = 0.0


class Make(ProcessingStage[Batch, Batch]):
    name = "make"

    def process(self, task: Batch) -> Batch:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "", "a CPU stage sees a GPU"
        task.data = numpy.random.default_rng(task.seed).standard_normal((SIZE, SIZE), dtype=numpy.float32)
        return task


class Model(ProcessingStage[Batch, Batch]):
    """A stack of matrix products with weights that live on the GPU."""

    name = "model"

    def __init__(self, layers: int) -> None:
        self.layers = layers

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        import torch

        assert worker_metadata is not None
        self.share = worker_metadata.gpu_share
        torch.manual_seed(7)
        self.weights = torch.randn(SIZE, SIZE, device="cuda") / SIZE**0.5

    def process(self, task: Batch) -> Batch:
        import torch

        x = torch.from_numpy(task.data).cuda()
        for _ in range(self.layers):
            x = torch.tanh(x @ self.weights)
        task.data = float(x.double().sum())
        task.where = f"{os.environ['CUDA_VISIBLE_DEVICES']}:{torch.cuda.get_device_name()}"
        task.share = self.share
        return task

    def teardown(self) -> None:
        del self.weights


def main() -> None:
    reference: list[float] = []
    for name, resources in (
        ("one worker on the GPU", Resources(gpus=1)),
        ("quarters of the GPU", Resources(gpus=0.25)),
        ("40 GB of the GPU", Resources(gpu_memory_gb=40)),
    ):
        tasks = [Batch(seed=i) for i in range(600)]
        stages = [Make(), Model(400).with_(resources=resources)]
        began = time.time()
        result = Pipeline("gpu", stages=stages).run(LocalExecutor({"view": "off"}), initial_tasks=tasks)
        sums = [task.data for task in result]
        reference = reference or sums
        model = result.record.steps[1]
        print(
            json.dumps(
                {
                    "benchmark": f"gpu, {name}",
                    "wall_s": round(time.time() - began, 2),
                    "tasks_per_s": round(len(sums) / (result.record.wall_s - (result.record.first_output_s or 0)), 1),
                    "workers": max(n for _, n in model.workers),
                    "share": result[0].share,
                    "device": result[0].where,
                    "busy_share": round(model.busy_share, 4),
                    "same_results": numpy.allclose(sums, reference, rtol=1e-3, atol=1e-2),
                    "setups": model.stages[0].setups,
                    "teardowns": model.stages[0].teardowns,
                }
            ),
            flush=True,
        )
    try:
        Pipeline("gpu", stages=[Make(), Model(1).with_(resources=Resources(gpu_memory_gb=1000))]).run(
            LocalExecutor({"view": "off"}), initial_tasks=[Batch()]
        )
    except PlanError as error:
        print(json.dumps({"benchmark": "gpu, more memory than there is", "error": str(error)}))


if __name__ == "__main__":
    main()
