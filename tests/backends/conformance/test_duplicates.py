"""Deduplication gives the same bytes on every executor: it is run in pieces, with work on the executor between."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.backends.conformance.executors import Kind

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.pipeline.phases import barrier_context
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter

WORDS = [f"w{n:03d}" for n in range(400)]


def make_corpus(folder: Path) -> None:
    folder.mkdir()
    rng = random.Random(5)
    base = [rng.choices(WORDS, k=80) for _ in range(60)]
    for f in range(4):
        lines = []
        for i in range(100):
            words = list(rng.choice(base)) if rng.random() < 0.6 else rng.choices(WORDS, k=rng.randrange(10, 90))
            if rng.random() < 0.5:
                words[rng.randrange(len(words))] = "changed"
            lines.append(json.dumps({"id": f"{f}-{i}", "text": " ".join(words)}) + "\n")
        (folder / f"{f}.jsonl").write_text("".join(lines))


def deduplicate(source: Path, target: Path) -> Pipeline:
    stages: list[Any] = [JsonlReader(str(source), blocksize="60KB"), ScoreFilter(WordCountFilter(20))]
    stages += [FuzzyDeduplication(verify=True), JsonlWriter(str(target))]
    return Pipeline("dedup", stages=stages)


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and "_gristmill" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.filterwarnings("ignore::gristmill.backends.capabilities.LimitedExecutor")
@pytest.mark.timeout(600)
def test_every_executor_removes_the_same_duplicates(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind.name in ("ray_data", "xenna"):
        pytest.skip("there are six runs in one, and those of bridges are slow")
    make_corpus(tmp_path / "in")
    expected = deduplicate(tmp_path / "in", tmp_path / "one").run(LocalExecutor({"num_cpus": 1, "view": "off"}))
    monkeypatch.setattr(barrier_context, "HERE_BYTES", 0)  # all that is done between goes through the executor
    result = deduplicate(tmp_path / "in", tmp_path / "other").run(kind.make())
    assert files(tmp_path / "one") == files(tmp_path / "other")
    assert result.ledger is not None and expected.ledger is not None
    assert result.ledger.plain()["total"] == expected.ledger.plain()["total"]
    assert len(result.ledger.total().dropped) == 2
