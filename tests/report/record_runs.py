"""Run small pipelines that each have one flaw, and store their reports.

    python tests/report/record_runs.py [NAME ...]

The reports in ``recorded/`` are of real runs on a machine with 2 CPUs. `test_advisor.py` checks the advice on each.
Stages sleep instead of computing where the flaw is about waiting or about workers.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gristmill import DocumentBatch, Pipeline, ProcessingStage, Resources
from gristmill.backends.local import LocalExecutor
from gristmill.errors import PipelineError
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.filters import MeanWordLengthFilter, ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter

HERE = Path(__file__).parent / "recorded"
WORDS = ["the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not", "are"]
SCENARIOS: dict[str, Callable[[Path], None]] = {}


class Works(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Takes time for each batch: of a CPU, or asleep."""

    def __init__(self, name: str, seconds: float = 0.0, asleep: bool = False, setup_s: float = 0.0) -> None:
        self.ballast_bytes = 0
        self.name = name
        self.seconds = seconds
        self.asleep = asleep
        self.setup_s = setup_s

    def setup(self, worker_metadata: Any = None) -> None:
        time.sleep(self.setup_s)
        self.ballast = os.urandom(self.ballast_bytes)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        texts = task.data["text"].to_pylist()
        seconds = 8.0 if any("huge" in text for text in texts) else self.seconds
        if any("deadly" in text for text in texts) and not os.path.exists("died"):
            Path("died").touch()
            os._exit(7)
        if any("broken" in text for text in texts):
            raise ValueError("a broken document")
        end = time.process_time() + seconds
        while not self.asleep and time.process_time() < end:
            pass
        time.sleep(seconds if self.asleep else 0)
        return task


class Grows(Works):
    """Makes 8 MB of each batch."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        rows = [{**row, "text": row["text"] + "x" * (8 << 20)} for row in task.to_pylist()[:1]]
        import pyarrow as pa

        return DocumentBatch(pa.Table.from_pylist([{**row} for row in rows], schema=task.data.schema))


def scenario(function: Callable[[Path], None]) -> Callable[[Path], None]:
    SCENARIOS[function.__name__] = function
    return function


def write(folder: Path, files: int, each: int = 2, texts: dict[int, str] | None = None) -> str:
    """Write files of documents: one block each."""
    random_ = random.Random(1)
    for number in range(files):
        made = [" ".join(random_.choice(WORDS) for _ in range(random_.randrange(5, 60))) for _ in range(each)]
        if number in (texts or {}):
            made[0] = texts[number]
        lines = [json.dumps({"id": f"{number}-{i}", "text": text}) + "\n" for i, text in enumerate(made)]
        (folder / f"in-{number:04}.jsonl").write_text("".join(lines))
    return str(folder)


def run(source: str, *stages: Any, executor: LocalExecutor | None = None, **options: Any) -> None:
    reader = JsonlReader(source, files_per_partition=1)
    pipeline = Pipeline("p", stages=[reader, *stages, JsonlWriter("output")])
    pipeline.run(executor or LocalExecutor(dict(num_cpus=2, view="off")), report=True, **options)


@scenario
def balanced(folder: Path) -> None:
    run(write(folder, 80), Works("computes", 0.15))


@scenario
def gpu_starved(folder: Path) -> None:
    embed = Works("embed", 0.01).with_(resources=Resources(gpus=1))
    executor = LocalExecutor(dict(num_cpus=2, num_gpus=1, view="off"))
    run(write(folder, 80), Works("tokenize", 0.2, asleep=True), embed, executor=executor)


@scenario
def gpu_busy(folder: Path) -> None:
    embed = Works("embed", 0.1, asleep=True).with_(resources=Resources(gpus=1))
    executor = LocalExecutor(dict(num_cpus=2, num_gpus=1, view="off"))
    run(write(folder, 80), Works("tokenize", 0.001), embed, executor=executor)


@scenario
def small_batches(folder: Path) -> None:
    run(write(folder, 4_000), Works("tiny").with_(resources=Resources(cpus=0.5)))


@scenario
def fixed_workers(folder: Path) -> None:
    run(write(folder, 80), Works("limited", 0.1).with_(num_workers=1))


@scenario
def few_blocks(folder: Path) -> None:
    write(folder, 1, 50)
    plain = folder / "in-0000.jsonl"
    (folder / "in.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    run(str(folder), Works("computes", 7))


@scenario
def slow_storage(folder: Path) -> None:
    run(write(folder, 80), Works("fetches", 0.2, asleep=True))


@scenario
def oversized_tasks(folder: Path) -> None:
    run(write(folder, 40, texts={5: "huge"}), Works("computes", 0.02))


@scenario
def workers_died(folder: Path) -> None:
    run(write(folder, 40, texts={3: "deadly"}), Works("computes", 0.02))


@scenario
def setup_dominates(folder: Path) -> None:
    run(write(folder, 8), Works("model", 0.05, setup_s=6))


@scenario
def memory_near_limit(folder: Path) -> None:
    large = Works("large", 0.05)
    large.ballast_bytes = 75 << 20
    run(write(folder, 60), large, executor=LocalExecutor(dict(num_cpus=2, memory_limit="300MB", view="off")))


@scenario
def blocked_by_output(folder: Path) -> None:
    slow = Works("slow", 0.5, asleep=True).with_(resources=Resources(cpus=0.9))
    grows = Grows("grows").with_(resources=Resources(cpus=0.2))
    run(write(folder, 60), grows, slow, executor=LocalExecutor(dict(num_cpus=2, memory_limit="800MB", view="off")))


@scenario
def drops(folder: Path) -> None:
    strict = ScoreFilter(WordCountFilter(58)).with_(name="strict")
    run(write(folder, 8, 200), ScoreFilter(MeanWordLengthFilter(1, 50)), strict)


@scenario
def skewed_duplicates(folder: Path) -> None:
    write(folder, 8, 100)
    (folder / "same.jsonl").write_text("".join(json.dumps({"id": i, "text": "log in"}) + "\n" for i in range(150)))
    run(str(folder), ExactDeduplication())


@scenario
def failed(folder: Path) -> None:
    run(write(folder, 20, texts={4: "broken"}), Works("computes", 0.01))


@scenario
def quarantined(folder: Path) -> None:
    write(folder, 20, 10)
    (folder / "bad.jsonl").write_text("not json\n" * 10)
    run(str(folder), Works("computes", 0.01))


def main() -> None:
    HERE.mkdir(exist_ok=True)
    for name in sys.argv[1:] or SCENARIOS:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "input"
            folder.mkdir()
            os.chdir(place)
            try:
                SCENARIOS[name](folder)
            except PipelineError as error:
                print(f"{name}: {str(error).splitlines()[0]}")
            data = json.loads(Path("output/_gristmill/report.json").read_text())
            os.chdir(HERE)
            shutil.rmtree(place, ignore_errors=True)
            Path(place).mkdir()
        found = [finding["rule"] for finding in data.pop("findings")]
        print(f"{name}: {data['wall_s']:.1f} s: {', '.join(found)}", flush=True)
        for key in ("excluded", "kept", "quarantine", "pipeline", "command", "output", "messages"):
            data.pop(key, None)
        data["inputs"].pop("names", None)
        (HERE / f"{name}.json").write_text(json.dumps(data, separators=(",", ":")).replace(place, "") + "\n")


if __name__ == "__main__":
    main()
