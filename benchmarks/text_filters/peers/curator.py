"""The job on NeMo Curator. curator.py SOURCE OUT CPUS xenna|ray_data RAY_FOLDER"""

import json
import shutil
import sys
import time
from pathlib import Path

from curator_rules import RULES
from nemo_curator.core.client import RayClient
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.text.filters import ScoreFilter
from nemo_curator.stages.text.io.reader import JsonlReader
from nemo_curator.stages.text.io.writer import JsonlWriter


def main() -> None:
    source, out, cpus, executor_name, ray_folder = sys.argv[1:6]
    if executor_name == "xenna":
        from nemo_curator.backends.xenna import XennaExecutor as Executor
    else:
        from nemo_curator.backends.ray_data import RayDataExecutor as Executor
    shutil.rmtree(out, ignore_errors=True)
    Path(ray_folder).mkdir(parents=True, exist_ok=True)
    client = RayClient(num_cpus=int(cpus), include_dashboard=False, ray_temp_dir=str(Path(ray_folder).absolute()))
    client.start()
    ready = time.time()
    pipeline = Pipeline("benchmark")
    pipeline.add_stage(JsonlReader(file_paths=source, files_per_partition=1))
    pipeline.add_stage(ScoreFilter(list(RULES.values())))  # one stage for all filters: faster than one for each
    pipeline.add_stage(JsonlWriter(path=out))
    pipeline.run(Executor())
    client.stop()
    kept = sum(path.read_bytes().count(b"\n") for path in Path(out).glob("*.jsonl"))
    print("FIGURES " + json.dumps({"ready": ready, "kept": kept}))


if __name__ == "__main__":
    main()
