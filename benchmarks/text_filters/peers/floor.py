"""What reading and writing cost alone: every line parsed by orjson, made JSON again and written. No rule at all.

floor.py SOURCE OUT WORKERS
"""

import json
import multiprocessing
import shutil
import sys
import time
from pathlib import Path

import orjson


def one_file(names: tuple[str, str]) -> int:
    kept = 0
    with open(names[0], "rb") as source, open(names[1], "wb") as out:
        for line in source:
            out.write(orjson.dumps(orjson.loads(line), option=orjson.OPT_APPEND_NEWLINE))
            kept += 1
    return kept


def main() -> None:
    source, out, workers = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    ready = time.time()
    names = [(str(path), str(out / path.name)) for path in sorted(source.glob("*.jsonl"))]
    with multiprocessing.Pool(workers) as pool:
        kept = sum(pool.imap_unordered(one_file, names))
    print("FIGURES " + json.dumps({"ready": ready, "kept": kept}))


if __name__ == "__main__":
    main()
