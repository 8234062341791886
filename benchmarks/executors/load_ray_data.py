"""The loads on plain Ray Data, as one writes them by hand. `load_ray_data.py LOAD - TASKS`"""

import json
import os
import resource
import sys
import time

import ray

SECONDS = {"overhead": [0.0] * 5, "balance": [0.25, 1.0, 0.5]}


def stage(i, seconds):
    def work(row):
        began = time.time()
        if seconds:
            time.sleep(seconds)
        row[f"began{i}"], row[f"ended{i}"] = began, time.time()
        return row

    work.__name__ = f"stage{i}"
    return work


def main():
    load, n = sys.argv[1], int(sys.argv[3])
    # a cluster of its own, whatever another run has left in that folder
    folder = os.path.abspath("bench-work/ray")
    ray.init("local", num_cpus=8, include_dashboard=False, logging_level="error", _temp_dir=folder)
    ray.data.DataContext.get_current().enable_progress_bars = False
    used = resource.getrusage(resource.RUSAGE_SELF)
    before = used.ru_utime + used.ru_stime
    data = ray.data.from_items([{"n": i} for i in range(n)], override_num_blocks=n)
    for i, seconds in enumerate(SECONDS[load]):
        data = data.map(stage(i, seconds), num_cpus=1 + i / 1000)  # other resources, or stages become one
    rows = data.take_all()
    used = resource.getrusage(resource.RUSAGE_SELF)
    driver = used.ru_utime + used.ru_stime - before
    last = len(SECONDS[load]) - 1
    first, done = min(row["began0"] for row in rows), sorted(row[f"ended{last}"] for row in rows)
    print("FIGURES " + json.dumps({"first": first, "done": done, "driver_cpu_s": driver}))
    ray.shutdown()


if __name__ == "__main__":
    main()
