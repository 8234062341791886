"""The overhead load on datatrove: run by compare.py in the peer's environment. `load_datatrove.py overhead - TASKS`"""

import json
import sys
import tempfile
import time
from pathlib import Path

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor


def source(data, rank=0, world_size=1):
    yield Document(text="x", id=str(rank))


def nothing(data, rank=0, world_size=1):
    yield from data


def main():
    n = int(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        first = time.time()
        LocalPipelineExecutor(pipeline=[source, *[nothing] * 5], tasks=n, workers=2, logging_dir=folder).run()
        done = sorted(f.stat().st_mtime for f in Path(folder, "completions").iterdir())
    print("FIGURES " + json.dumps({"first": max(first, done[0] - 0.01), "done": done}))


if __name__ == "__main__":
    main()
