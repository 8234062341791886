"""The loads on NeMo Curator: run by compare.py in the peer's environment.

load_curator.py LOAD EXECUTOR TASKS [key=value]
"""

import json
import os
import resource
import sys
import time
from dataclasses import dataclass, field

from nemo_curator.core.client import RayClient
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.base import ProcessingStage
from nemo_curator.stages.resources import Resources
from nemo_curator.tasks import Task

SECONDS = {"overhead": [0.0] * 5, "balance": [0.25, 1.0, 0.5]}


@dataclass
class Item(Task[list]):
    data: list = field(default_factory=list)

    @property
    def num_items(self):
        return 1

    def validate(self):
        return True


def stage_class(i, seconds):
    """A class for each stage: the executors tell stages apart by their class."""

    class Stage(ProcessingStage[Item, Item]):
        name = f"stage{i}"
        resources = Resources(cpus=1.0)

        def inputs(self):
            return [], []

        def outputs(self):
            return [], []

        def process(self, task):
            began = time.time()
            if seconds:
                time.sleep(seconds)
            task.data = [*task.data, (began, time.time())]
            return task

    Stage.__name__ = Stage.__qualname__ = f"Stage{i}"
    return Stage


def main():
    load, executor_name, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    config = {k: float(v) for k, v in (x.split("=") for x in sys.argv[4:])}
    if executor_name == "xenna":
        from nemo_curator.backends.xenna import XennaExecutor as Executor
    elif executor_name == "actor_pool":
        from nemo_curator.backends.ray_actor_pool import RayActorPoolExecutor as Executor
    else:
        from nemo_curator.backends.ray_data import RayDataExecutor as Executor
    client = RayClient(num_cpus=8, include_dashboard=False, ray_temp_dir=os.path.abspath("bench-work/ray"))
    client.start()
    pipeline = Pipeline(load)
    for i, seconds in enumerate(SECONDS[load]):
        pipeline.add_stage(stage_class(i, seconds)())
    before = resource.getrusage(resource.RUSAGE_SELF)
    results = pipeline.run(Executor(config), initial_tasks=[Item(dataset_name="x") for _ in range(n)])
    after = resource.getrusage(resource.RUSAGE_SELF)
    driver = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    stamps = [task.data for task in results]
    figures = {"first": min(s[0][0] for s in stamps), "done": sorted(s[-1][1] for s in stamps), "driver_cpu_s": driver}
    print("FIGURES " + json.dumps(figures))
    client.stop()


if __name__ == "__main__":
    main()
