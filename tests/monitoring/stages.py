"""A pipeline with everything that metrics count: drops, errors, retries, failures, deaths, and workers of its own."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from gristmill import DocumentBatch, Pipeline, ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.text import JsonlReader, JsonlWriter

BAD_RECORDS = 2
SHORT_EVERY = 5
GO = "go"
"""A file that lets the work begin: Prometheus takes seconds to find a run, and a run may be over by then."""


def write_corpus(folder: Path, documents: int, files: int = 4) -> None:
    """Write documents, every fifth one short, and two lines that are no JSON."""
    folder.mkdir(parents=True)
    for i in range(files):
        lines = [
            json.dumps({"id": f"{i}-{n}", "text": "short" if n % SHORT_EVERY == 0 else "word " * 200})
            for n in range(documents // files)
        ]
        if i < BAD_RECORDS:
            lines.append("{no json")
        (folder / f"{i}.jsonl").write_text("\n".join(lines) + "\n")


class DropShort(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drops short documents, for a reason with a quote, a backslash and a line break in it."""

    name = "drop_short"
    REASON = 'too "short" \\ or\nempty'

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        texts = batch.data["text"].to_pylist()
        return batch.keep([len(text) > 10 for text in texts], reason=self.REASON)


class Trouble(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Begins when a folder has the file `GO`, and takes a while.

    Fails on one task once, and kills its worker on another one once; the folder has notes of both.
    """

    name = "trouble"
    resources = Resources(cpus=0.5)

    def __init__(self, notes: str, seconds: float, workers: int, kills: bool) -> None:
        self.notes = notes
        self.seconds = seconds
        self.workers = workers
        self.kills = kills

    def num_workers(self) -> int:
        return self.workers

    def setup(self, worker_metadata: Any = None) -> None:
        time.sleep(0.05)

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        until = time.monotonic() + 120
        while not Path(self.notes, GO).exists():
            assert time.monotonic() < until, "the metrics were never read"
            time.sleep(0.05)
        time.sleep(self.seconds)
        ids = batch.data["id"].to_pylist()
        if "0-1" in ids and self._first("failed"):
            raise ValueError("fails once")
        if "2-1" in ids and self.kills and self._first("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    def _first(self, what: str) -> bool:
        try:
            os.close(os.open(Path(self.notes, what), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


class FailsOnOne(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Fails on one document of the corpus, always."""

    name = "fails_on_one"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        if "1-1" in batch.data["id"].to_pylist():
            raise ValueError("cannot process document 1-1")
        return batch


def pipeline_of(
    folder: Path, documents: int = 2000, seconds: float = 0.15, workers: int = 2, kills: bool = True
) -> Pipeline:
    """Return a pipeline on a new corpus."""
    write_corpus(folder / "in", documents)
    (folder / "notes").mkdir()
    return Pipeline(
        f"pipeline of {folder.name}",
        stages=[
            JsonlReader(str(folder / "in"), blocksize="8KB"),
            DropShort(),
            Trouble(str(folder / "notes"), seconds, workers, kills),
            FailsOnOne(),
            JsonlWriter(str(folder / "out")),
        ],
    )
