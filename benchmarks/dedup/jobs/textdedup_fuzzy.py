"""Fuzzy deduplication by text-dedup: 5 words, 20 bands of 13.

textdedup_fuzzy.py SOURCE OUT WORKERS clusters|no-clusters
"""

import json
import pickle
import shutil
import sys
import time
from pathlib import Path

from datasets import load_from_disk
from text_dedup import minhash


def main() -> None:
    source, out, workers, clusters = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "clusters"
    shutil.rmtree(out, ignore_errors=True)
    arguments = {
        "path": "json",
        "data_files": f"{source}/*.jsonl",
        "split": "train",
        "cache_dir": str(out / "cache"),
        "output": str(out / "kept"),
        "column": "text",
        "idx_column": "id",
        "batch_size": "1000",
        "num_perm": "260",
        "b": "20",
        "r": "13",
        "ngram": "5",
        "threshold": "0.8",
        "hash_func": "xxh3",
        "num_proc": workers,
        "min_length": "1",
    }
    ready = time.time()
    command = [part for name, value in arguments.items() for part in (f"--{name}", value)]
    minhash.main([*command, "--debug" if clusters else "--no-debug"], standalone_mode=False)
    kept = load_from_disk(str(out / "kept"))
    print("FIGURES " + json.dumps({"ready": ready, "kept": len(kept)}))
    if clusters:
        write_clusters(out, set(kept["id"]))


def write_clusters(out: Path, kept: set[str]) -> None:
    """The content of the forest that text-dedup writes in its debug mode."""
    forest = pickle.loads((out / "kept" / "uf.pkl").read_bytes())
    parents = getattr(forest, "parent", forest)
    with (out / "clusters.jsonl").open("w") as file:
        for ident, parent in parents.items():
            while parents[parent] != parent:
                parent = parents[parent]
            file.write(json.dumps({"id": ident, "cluster": parent, "kept": ident in kept}) + "\n")


if __name__ == "__main__":
    main()
