"""The loads on gristmill. `load_gristmill.py LOAD fused|unfused TASKS local|ray`"""

import json
import resource
import sys
import time
from dataclasses import dataclass, field

from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.tasks import Task

SECONDS = {"overhead": [0.0] * 5, "balance": [0.25, 1.0, 0.5]}


@dataclass
class Item(Task[list]):
    data: list = field(default_factory=list)


class Stage(ProcessingStage[Item, Item]):
    def __init__(self, name, seconds):
        self.name = name
        self.seconds = seconds
        self.resources = Resources(gpus=1) if seconds else Resources()

    def process(self, task):
        began = time.time()
        if self.seconds:
            time.sleep(self.seconds)
        task.data = [*task.data, (began, time.time())]
        return task


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


load, how, n, where = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
config = {"view": "off"}
if where == "ray":
    from gristmill.backends.ray import RayExecutor as Executor

    config |= {"num_cpus": 8, "num_gpus": 7 if load == "balance" else 0}
else:
    from gristmill.backends.local import LocalExecutor as Executor

    config |= {"num_cpus": 8, "num_gpus": 7} if load == "balance" else {}
pipeline = Pipeline(load, stages=[Stage(f"stage {i}", s) for i, s in enumerate(SECONDS[load])])
before = cpu_s()
results = pipeline.run(Executor(config), [Item() for _ in range(n)], keep_outputs=True, fuse=how == "fused")
driver = cpu_s() - before
stamps = [task.data for task in results]
figures = {"first": min(s[0][0] for s in stamps), "done": sorted(s[-1][1] for s in stamps), "driver_cpu_s": driver}
print("FIGURES " + json.dumps(figures))
