"""Corpora for deduplication, ways to run it over them, and what it has left behind, read back in plain Python."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.stages.deduplication.in_process import InProcess

from gristmill.backends.base import Executor
from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline, RunResult
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.storage import Folder

WORDS = ("grain", "flour", "stone", "wheel", "water", "mill", "sack", "dust", "sieve", "bran", "hopper", "weir")

Document = dict[str, Any]


def texts(seed: int, count: int, words: int = 60) -> list[str]:
    """Texts that have nothing to do with each other: each has words of its own."""
    rng = random.Random(seed)
    return [" ".join(f"{rng.choice(WORDS)}{rng.randrange(10_000)}" for _ in range(words)) for _ in range(count)]


def edited(text: str, seed: int, changes: int = 1) -> str:
    """Nearly the same text: some words are others."""
    rng = random.Random(seed)
    words = text.split()
    for place in rng.sample(range(len(words)), changes):
        words[place] = f"edit{rng.randrange(10**9)}"
    return " ".join(words)


def write_jsonl(path: Path, documents: Iterable[Document], ascii_only: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(document, ensure_ascii=ascii_only) for document in documents]
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def execute(*stages: ProcessingStage, workers: int = 0, ignore_failures: bool = False, **how: bool) -> RunResult:
    """Run stages in this process, or on so many workers; ``how`` are options of `Pipeline.run`."""
    executor: Executor = InProcess(ignore_failures)
    if workers:
        executor = LocalExecutor({"num_cpus": workers, "view": "off", "ignore_failures": ignore_failures})
    return Pipeline("dedup", stages=list(stages)).run(executor, **how)


def deduplicate(
    source: Path, out: Path, barrier: ProcessingStage, *behind: ProcessingStage, blocksize: Any = None, **options: Any
) -> RunResult:
    """JSONL in, JSONL out, with a barrier between."""
    return execute(JsonlReader(str(source), blocksize=blocksize), barrier, *behind, JsonlWriter(str(out)), **options)


def written(folder: Path) -> dict[str, bytes]:
    """All that a run leaves but its log, by relative path."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "_gristmill" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def resumed_after_each_change(run: Callable[[Path], object], out: Path, left: Path) -> int:
    """Require that a run makes the same of what a kill leaves, whatever was written or removed last.

    A run in this process continues after each change, and what is there then is copied. Returns the number of changes.
    """
    count = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)  # hundreds of runs: the disk would take minutes
        with pytest.MonkeyPatch.context() as watched:
            for kind in ("write", "remove"):
                change = getattr(Folder, kind)

                def then_copy(self: Folder, *arguments: Any, change: Any = change, **options: Any) -> Any:
                    nonlocal count
                    result = change(self, *arguments, **options)
                    count += 1
                    shutil.copytree(out, left / str(count))
                    return result

                watched.setattr(Folder, kind, then_copy)
            run(out)
        whole = written(out)
        for number in range(1, count + 1):
            shutil.rmtree(out)
            (left / str(number)).rename(out)
            run(out)
            assert written(out) == whole, f"killed after change {number} of {count}"
    return count


def lines_of(out: Path, folder: str = "") -> list[Document]:
    """The documents in the JSONL files of a folder of the output, in the order of names."""
    found = sorted((out / folder).glob("*.jsonl"))
    return [json.loads(line) for path in found for line in path.read_bytes().splitlines()]


def records_of(out: Path, folder: str = "duplicates") -> list[Document]:
    """The records of removed documents, in the order of names."""
    return [row for path in sorted((out / folder).glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def places(source: Path) -> dict[str, str]:
    """The text of every document of plain JSONL files, by the id that it is known by: its file and its first byte."""
    found = {}
    for path in sorted(source.rglob("*.jsonl")):
        at = 0
        for line in path.read_bytes().splitlines(keepends=True):
            found[f"{path}#{at}"] = json.loads(line)["text"]
            at += len(line)
    return found


def first_of_equals(documents: Sequence[str]) -> list[int]:
    """For each text the place of the first one that equals it."""
    seen: dict[str, int] = {}
    return [seen.setdefault(text, n) for n, text in enumerate(documents)]
