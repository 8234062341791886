"""Copies that differ only in case, white space, invisible characters or normal form are near-duplicates."""

from __future__ import annotations

import json
import random
import textwrap
import unicodedata
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.errors import OutputChanged
from gristmill.pipeline.explain_duplicates import in_common
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
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


FRENCH = (
    "crème",
    "brûlée",
    "où",
    "élève",
    "naïf",
    "forêt",
    "garçon",
    "œuvre",
    "île",
    "noël",
    "là",
    "pâté",
    "sûr",
    "dé",
)


def test_invisible_characters_and_normal_forms_do_not_hide_duplicates(tmp_path):
    rng = random.Random(3)
    first, other = (" ".join(rng.choice(FRENCH) for _ in range(150)) for _ in range(2))
    hidden = "\u200b".join(first)
    marked = first.replace("e", "\u00ade").replace(" ", " \u2068\u200f\u2060\ufeff")
    texts = [unicodedata.normalize("NFC", first), unicodedata.normalize("NFD", first), hidden, marked, other]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts)))
    for name, options in (("sampled", {}), ("verified", {"verify": True}), ("words", {"word_ngrams": 5})):
        assert left(source, tmp_path / name, **options) == [0, 4]
        found = sorted((tmp_path / name / "duplicates").glob("*.parquet"))
        rows = [row for path in found for row in pq.read_table(path).to_pylist()]
        assert [(row["jaccard_estimated"], row["jaccard_verified"]) for row in rows] == [(1.0, 1.0)] * 3
    lines = list(in_common(texts[1], texts[0], normalize=True))
    assert lines == ["the texts are equal but for case, white space, invisible characters or the encoding of accents"]
    compared = list(in_common(texts[1] + " x", texts[0], normalize=True))
    assert compared[0] == "150 of its 151 words and of the 150 of the survivor are in common"
    kept = [json.loads(line) for line in (tmp_path / "sampled/part-000000.jsonl").read_text().splitlines()]
    assert kept[0]["text"] == texts[0]
    assert left(source, tmp_path / "plain", normalize=False) == [0, 1, 2, 3, 4]


def test_an_output_of_another_way_to_make_keys_is_not_resumed(source, tmp_path, monkeypatch):
    left(source, tmp_path / "out")
    monkeypatch.setattr(FuzzyDeduplication, "revision", FuzzyDeduplication.revision + 1)
    with pytest.raises(OutputChanged, match="--fresh"):
        left(source, tmp_path / "out")
