"""Copies that differ in case and white space only are near-duplicates."""

from __future__ import annotations

import json
import random
import textwrap
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.stages.deduplication.fuzzy.workflow import FuzzyDeduplicationWorkflow

WORDS = ("mill", "grain", "flour", "stone", "wheel", "water", "river", "field", "wind", "sack", "barn", "cart", "oats")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rng = random.Random(9)
    first, other = (" ".join(rng.choice(WORDS).title() for _ in range(150)) for _ in range(2))
    texts = [first, first.upper(), textwrap.fill(first, 40), other, "  " + first.replace(" ", "\t \u00a0") + "\n"]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts)))
    return path


def left(source: Path, out: Path, **options: object) -> list[int]:
    workflow = FuzzyDeduplicationWorkflow(str(source), str(out), **options)  # type: ignore[arg-type]
    workflow.run(LocalExecutor({"num_cpus": 1.0, "view": "off"}))
    return [json.loads(line)["id"] for path in sorted(out.glob("part-*")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("verify", [False, True])
def test_case_and_white_space_do_not_matter_unless_told_so(source, tmp_path, verify):
    assert left(source, tmp_path / "out", verify=verify) == [0, 3]
    rows = [row for path in (tmp_path / "out/duplicates").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert [row["jaccard_verified"] for row in rows] == [1.0] * 3
    assert left(source, tmp_path / "plain", verify=verify, normalize=False) == [0, 1, 2, 3, 4]
