"""Progress inside a block that is read as one batch: documents read and kept grow while it runs."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.ledger.run import RunLedger
from gristmill.pipeline import Pipeline
from gristmill.stages.text.filters import DocumentFilter, ScoreFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter

DOCUMENTS = 16
GIVE_UP_S = 120
"""A safety net, for the case that the test fails."""


class Waits(DocumentFilter):
    """Takes a while for one document, and waits at a later one until the progress was seen."""

    def __init__(self, folder: str, then: str) -> None:
        self.folder = Path(folder)
        self.then = then

    def score_document(self, text: str) -> float:
        number = int(text[:2])
        if number == 5:
            time.sleep(0.6)  # longer than the time between two messages
        if number == 12:
            until = time.monotonic() + GIVE_UP_S
            while not (self.folder / "seen").exists() and time.monotonic() < until:
                time.sleep(0.01)
            if not (self.folder / "failed").exists():
                (self.folder / "failed").touch()
                if self.then == "is killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                if self.then == "raises":
                    raise ValueError("once")
        return number

    def keep_document(self, score: float) -> bool:
        return score != 1


@pytest.mark.parametrize("then", ["runs on", "is killed", "raises"])
def test_documents_of_a_block_are_counted_before_it_is_done(tmp_path, monkeypatch, then):
    corpus = tmp_path / "in.jsonl"
    lines = [json.dumps({"id": n, "text": f"{n:02d} {'word ' * 200_000}"}) for n in range(DOCUMENTS)]
    corpus.write_text("\n".join(lines) + "\n")
    seen: list[tuple[int, int, int]] = []
    so_far = RunLedger.so_far

    def watched(ledger: RunLedger) -> tuple[int, int, int]:
        seen.append(so_far(ledger))
        if seen[-1][1] and not ledger.blocks:
            (tmp_path / "seen").touch()
        return seen[-1]

    monkeypatch.setattr(RunLedger, "so_far", watched)
    stages = [
        JsonlReader(str(corpus), files_per_partition=1),
        ScoreFilter(Waits(str(tmp_path), then), score_field="score"),
        JsonlWriter(str(tmp_path / "out")),
    ]
    result = Pipeline("progress", stages=stages).run(LocalExecutor(config={"num_cpus": 2, "max_attempts": 3}))
    assert (tmp_path / "seen").exists(), seen
    first = next(one for one in seen if one[1])
    assert first[0] == DOCUMENTS and 0 < first[1] < DOCUMENTS - 1 and 0 < first[2] < corpus.stat().st_size
    assert all(read <= DOCUMENTS and kept < DOCUMENTS for read, kept, _ in seen)
    assert seen[-1] == (DOCUMENTS, DOCUMENTS - 1, corpus.stat().st_size)
    assert result.ledger is not None and not result.ledger.under_way
