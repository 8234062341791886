"""The frame of the jobs in plain Python: a folder of files in, one of the same names out, a process for each core.

This runs in the environments of peers, without gristmill.
"""

import json
import multiprocessing
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path


def main(one_file: Callable[[tuple[str, str]], int]) -> None:
    """``JOB SOURCE OUT WORKERS``: ``one_file`` gets the names of a file to read and one to write, and counts."""
    source, out, workers = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    ready = time.time()
    names = [(str(path), str(out / path.name)) for path in sorted(source.glob("*.jsonl"))]
    with multiprocessing.Pool(workers) as pool:
        kept = sum(pool.imap_unordered(one_file, names))
    print("FIGURES " + json.dumps({"ready": ready, "kept": kept}))
