"""The loads on gristmill. `load_gristmill.py LOAD fused|unfused TASKS`"""

import json
import sys
import time
from dataclasses import dataclass, field

from gristmill.backends.local import LocalExecutor
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


load, how, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
config = {"view": "off"} | ({"num_cpus": 8, "num_gpus": 7} if load == "balance" else {})
pipeline = Pipeline(load, stages=[Stage(f"stage {i}", s) for i, s in enumerate(SECONDS[load])])
results = pipeline.run(LocalExecutor(config), [Item() for _ in range(n)], keep_outputs=True, fuse=how == "fused")
stamps = [task.data for task in results]
print("FIGURES " + json.dumps({"first": min(s[0][0] for s in stamps), "done": sorted(s[-1][1] for s in stamps)}))
