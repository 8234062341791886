"""The job on datatrove: its Gopher quality and Gopher repetition filters. run_datatrove.py SOURCE OUT WORKERS"""

import json
import shutil
import sys
import time
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers.jsonl import JsonlWriter


def main() -> None:
    source, out, workers = sys.argv[1:4]
    for folder in (out, out + "-logs"):
        shutil.rmtree(folder, ignore_errors=True)
    ready = time.time()
    stages = [
        JsonlReader(source),
        GopherQualityFilter(),
        GopherRepetitionFilter(),
        JsonlWriter(out, compression=None, output_filename="${rank}.jsonl"),
    ]
    files = len(list(Path(source).glob("*.jsonl")))
    LocalPipelineExecutor(pipeline=stages, tasks=files, workers=int(workers), logging_dir=out + "-logs").run()
    kept = sum(path.read_bytes().count(b"\n") for path in Path(out).glob("*.jsonl"))
    print("FIGURES " + json.dumps({"ready": ready, "kept": kept}))


if __name__ == "__main__":
    main()
