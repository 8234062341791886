"""Nodes that come and go: a run on four Ray nodes of this machine, disturbed, beside one that is not disturbed.

    python benchmarks/executors/nodes.py SOURCE WORK [--seconds 0.5]

SOURCE is a folder of JSONL, such as c20k of benchmarks/text_filters. Gopher's rules, and a stage that takes its time
with each block, are run by the local executor, and then on Ray while a node is killed (its raylet, SIGKILL), a node is
added, and a worker is killed each second. Prints whether the files are the same, whether the ledger balances, and how
many blocks each node has done, from the first to the last.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from gristmill import DocumentBatch, Pipeline, ProcessingStage, Resources
from gristmill.backends.local import LocalExecutor
from gristmill.backends.ray import RayExecutor
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.stages.text.recipes import recipe

NODE = {"node_ip_address": "127.0.0.1", "object_store_memory": 200 << 20}
SETTINGS = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


class Slow(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Takes its time, and notes where and when it did."""

    resources = Resources(cpus=1)

    def __init__(self, seconds: float, notes: str) -> None:
        self.seconds = seconds
        self.notes = notes

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        time.sleep(self.seconds)
        if self.notes:
            import ray

            with open(os.path.join(self.notes, ray.get_runtime_context().get_node_id()), "a") as file:
                file.write(f"{time.time()} {task.task_id}\n")
        return task


def curate(source: str, out: Path, seconds: float, notes: str = "") -> Pipeline:
    shutil.rmtree(out, ignore_errors=True)
    stages = [JsonlReader(source, blocksize="512KB"), recipe("gopher-quality"), recipe("gopher-repetition")]
    return Pipeline("nodes", stages=[*stages, Slow(seconds, notes), JsonlWriter(str(out))])


def files(folder: Path) -> dict[str, bytes]:
    """The output of a run, without the log of when it was written."""
    found = (path for path in folder.rglob("*") if path.is_file() and "_gristmill" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def workers_of(cluster: Any) -> list[psutil.Process]:
    found = []
    for node in cluster.list_all_nodes():
        with suppress(psutil.Error):  # it has gone meanwhile
            for child in psutil.Process(node.all_processes["raylet"][0].process.pid).children():
                with suppress(psutil.Error):
                    found += [child] if "ray::WorkerActo" in " ".join(child.cmdline()) else []
    return found


def disturbed(cluster: Any, pipeline: Pipeline, notes: Path) -> tuple[Any, dict[str, str], int]:
    """Run the pipeline under disturbances. Return the result, the nodes, and how many workers were killed."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(pipeline.run(RayExecutor({"view": "off"})))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    names = {cluster.head_node.node_id: "head"}
    names |= {node.node_id: f"node {n}" for n, node in enumerate(cluster.worker_nodes, 1)}
    others = {node.node_id: node for node in cluster.worker_nodes}
    thread.start()
    lost = added = None
    kills = 0
    while thread.is_alive():
        thread.join(1)
        worked = [file.name for file in notes.iterdir()]
        if not worked:
            continue
        if processes := workers_of(cluster):
            random.choice(processes).kill()
            kills += 1
        if lost is None and (here := sorted(others.keys() & set(worked))):
            lost = here[0]
            names[lost] += ", killed"
            cluster.remove_node(others[lost], allow_graceful=False)
        elif lost and added is None:
            added = cluster.add_node(**NODE, num_cpus=2)
            names[added.node_id] = "added"
    result = found[0]
    if isinstance(result, BaseException):
        raise result
    return result, names, kills


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("work", type=Path)
    parser.add_argument("--seconds", type=float, default=0.5)
    args = parser.parse_args()
    os.environ.update(SETTINGS)
    import ray
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    ray_constants.ENABLE_RAY_CLUSTER = False
    source, work = os.path.abspath(args.source), args.work.absolute()
    notes = work / "notes"
    shutil.rmtree(notes, ignore_errors=True)
    notes.mkdir(parents=True)
    curate(source, work / "local", 0).run(LocalExecutor({"view": "off"}))
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 1, "include_dashboard": False})
    try:
        for _ in range(3):
            cluster.add_node(**NODE, num_cpus=2)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        pipeline = curate(source, work / "ray", args.seconds, str(notes))
        result, names, kills = disturbed(cluster, pipeline, notes)
    finally:
        ray.shutdown()
        cluster.shutdown()
    done = {file.name: [line.split() for line in file.read_text().splitlines()] for file in notes.iterdir()}
    blocks = Counter(block for lines in done.values() for _, block in lines)
    first = min(float(when) for lines in done.values() for when, _ in lines)
    print(f"{kills} workers were killed; {len(blocks)} blocks, {blocks.total() - len(blocks)} of them done again")
    for ident, name in names.items():
        lines = done.get(ident, [])
        when = sorted(float(when) - first for when, _ in lines)
        span = f", from second {when[0]:.0f} to {when[-1]:.0f}" if when else ""
        print(f"{name}: {len(lines)} blocks, {len(lines) / blocks.total():.0%}{span}")
    same = files(work / "local") == files(work / "ray")
    total = result.ledger.total()
    gone = total.dropped.total() + total.merged + total.errored.total()
    print(f"read {total.documents:,}, kept {total.kept:,}, dropped {gone:,}: ", end="")
    print("it balances" if total.documents + total.made == total.kept + gone else "IT DOES NOT BALANCE")
    print("the files are those of the undisturbed run" if same else "THE FILES DIFFER")


if __name__ == "__main__":
    main()
