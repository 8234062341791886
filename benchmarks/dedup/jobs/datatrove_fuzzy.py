"""Fuzzy deduplication by datatrove, its four steps. datatrove_fuzzy.py SOURCE OUT WORKERS clusters|no-clusters"""

import json
import shutil
import sys
import time
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils.hashing import HashConfig

BANDS, ROWS, WORDS = 20, 13, 5


def writer(folder: str) -> JsonlWriter:
    return JsonlWriter(folder, compression=None, output_filename="${rank}.jsonl")


def write_clusters(out: str) -> None:
    with open(f"{out}/clusters.jsonl", "w") as file:
        for folder, kept in (("kept", True), ("removed", False)):
            for path in sorted(Path(out, folder).glob("*.jsonl")):
                with path.open() as lines:
                    for line in lines:
                        document = json.loads(line)
                        cluster = document["metadata"].get("minhash_cluster_id", -1)
                        if cluster >= 0:
                            file.write(json.dumps({"id": document["id"], "cluster": cluster, "kept": kept}) + "\n")


def main() -> None:
    source, out, workers, clusters = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "clusters"
    shutil.rmtree(out, ignore_errors=True)
    files = len(list(Path(source).glob("*.jsonl")))
    config = MinhashConfig(
        num_buckets=BANDS, hashes_per_bucket=ROWS, n_grams=WORDS, hash_config=HashConfig(precision=64)
    )
    ready = time.time()
    removing = MinhashDedupFilter(
        input_folder=f"{out}/clusters",
        exclusion_writer=writer(f"{out}/removed") if clusters else None,
        load_cluster_ids=clusters,
    )
    steps = {
        "signatures": (files, [JsonlReader(source), MinhashDedupSignature(f"{out}/signatures", config=config)]),
        "buckets": (BANDS, [MinhashDedupBuckets(f"{out}/signatures", f"{out}/buckets", config=config)]),
        "clusters": (
            1,
            [MinhashDedupCluster(f"{out}/buckets", f"{out}/clusters", config=config, save_cluster_id=clusters)],
        ),
        "filter": (files, [JsonlReader(source), removing, writer(f"{out}/kept")]),
    }
    for name, (tasks, pipeline) in steps.items():
        executor = LocalPipelineExecutor(
            pipeline=pipeline, tasks=tasks, workers=workers, logging_dir=f"{out}/logs/{name}"
        )
        executor.run()
    kept = sum(path.read_bytes().count(b"\n") for path in Path(out, "kept").glob("*.jsonl"))
    print("FIGURES " + json.dumps({"ready": ready, "kept": kept}))
    if clusters:
        write_clusters(out)


if __name__ == "__main__":
    main()
