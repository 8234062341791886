"""The job on gristmill. gristmill_job.py SOURCE OUT WORKERS excluded|no-excluded [RECIPE ...]"""

import json
import sys
import time

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.stages.text.recipes import recipe

GOPHER = ("gopher-quality", "gopher-repetition")


def main() -> None:
    source, out, workers, excluded, *recipes = sys.argv[1:]
    pipeline = Pipeline(
        "benchmark",
        stages=[
            JsonlReader(source),
            *(recipe(name) for name in recipes or GOPHER),
            JsonlWriter(out, excluded=excluded == "excluded"),
        ],
    )
    result = pipeline.run(LocalExecutor({"num_cpus": float(workers), "view": "off"}))
    began = time.time() - result.record.wall_s  # when the plan was made; the stages were being loaded before that
    kept = list(result.stages.values())[-1].items_in
    figures = {
        "ready": began + result.record.loaded_s,
        "kept": kept,
        "run_s": result.record.wall_s,
        "peak_by_engine": result.record.peak_memory_bytes,
        "stages": {name: round(stage.busy_s, 3) for name, stage in result.stages.items()},
    }
    print("FIGURES " + json.dumps(figures))


if __name__ == "__main__":
    main()
