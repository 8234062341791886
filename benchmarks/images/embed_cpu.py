"""Images per second and core of `ImageEmbeddingStage` with its default model, for JPEGs of 500 x 375 pixels.

    OMP_NUM_THREADS=1 python benchmarks/images/embed_cpu.py

Times are CPU time of one process, so other work on the machine matters less.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise

import pyarrow as pa
from gpu import jpeg

from gristmill.stages.asynchronous import results_of
from gristmill.stages.image.embedders import ImageEmbeddingStage
from gristmill.tasks.image import IMAGE, ImageBatch

COUNT = 100


def main() -> None:
    images = pa.array([jpeg(seed) for seed in range(COUNT)], pa.large_binary())
    stages = ImageEmbeddingStage(num_gpus_per_worker=0).flatten()
    for stage in stages:
        stage.setup()
    for _ in range(5):
        task = ImageBatch(data=pa.table({IMAGE: images}))
        times = [time.process_time()]
        for stage in stages:
            [task] = results_of(stage, task)  # type: ignore[assignment]
            times.append(time.process_time())
        decoding, model = ((later - now) / COUNT * 1000 for now, later in pairwise(times))
        speed = 1000 / (decoding + model)
        load = os.getloadavg()[0]
        print(
            f"input {decoding:.2f} ms, model {model:.2f} ms: {speed:.1f} images/s per core (load {load:.0f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
