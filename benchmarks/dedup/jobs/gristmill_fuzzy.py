"""Fuzzy deduplication by gristmill. gristmill_fuzzy.py SOURCE OUT WORKERS clusters|no-clusters [NAME=VALUE ...]

The names are arguments of `FuzzyDeduplicationWorkflow`, the values JSON.
"""

import json
import sys
import time
from pathlib import Path

from gristmill.backends.local import LocalExecutor
from gristmill.stages.deduplication.fuzzy.workflow import FuzzyDeduplicationWorkflow


def write_clusters(out: Path, records: str) -> None:
    """The content of the records, by the ids of the documents in the input; the survivor names a cluster."""
    import pyarrow.parquet as pq

    rows = [row for path in sorted(Path(records).glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    with (out / "clusters.jsonl").open("w") as file:
        for row in rows:
            members = ((row["id"], False), (row["survivor"], True))
            for place, kept in members:
                line = {"id": own_id(place), "cluster": row["survivor"], "kept": kept}
                file.write(json.dumps(line) + "\n")


def own_id(place: str) -> str:
    """The id in the record that begins at ``<file>#<byte>``."""
    path, _, position = place.rpartition("#")
    with open(path, "rb") as file:
        file.seek(int(position))
        ident: str = json.loads(file.readline())["id"]
    return ident


def main() -> None:
    source, out, workers, clusters, *options = sys.argv[1:]
    arguments = {name: json.loads(value) for name, _, value in (option.partition("=") for option in options)}
    ready = time.time()
    workflow = FuzzyDeduplicationWorkflow(source, out, **arguments)
    limit = {"memory_limit": arguments["memory_limit"]} if "memory_limit" in arguments else {}
    result = workflow.run(LocalExecutor({"num_cpus": float(workers), "view": "off", **limit}))
    print("FIGURES " + json.dumps({"ready": ready, "kept": result.documents - result.duplicates}))
    if clusters == "clusters":
        write_clusters(Path(out), result.records)


if __name__ == "__main__":
    main()
