"""Lines and paragraphs that were there before, against a plain model."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gristmill import Pipeline
from gristmill.backends.local import LocalExecutor
from gristmill.stages.deduplication.exact import LineDeduplication, ParagraphDeduplication
from gristmill.stages.deduplication.exact.pieces import NOTHING_LEFT
from gristmill.stages.text.io import JsonlReader, JsonlWriter


def run(folder: Path, texts: list[str], stage: object, **reader: object) -> list[dict[str, object]]:
    (folder / "in").mkdir()
    half = len(texts) // 2
    for name, some in (("a", texts[:half]), ("b", texts[half:])):
        lines = "".join(json.dumps({"id": f"{name}{i}", "text": text}) + "\n" for i, text in enumerate(some))
        (folder / "in" / f"{name}.jsonl").write_text(lines)
    stages = [JsonlReader(str(folder / "in"), **reader), stage, JsonlWriter(str(folder / "out"))]  # type: ignore[arg-type]
    result = Pipeline("pieces", stages=stages).run(LocalExecutor({"num_cpus": 2, "view": "off"}))  # type: ignore[arg-type]
    assert result.ok and result.ledger is not None
    files = sorted((folder / "out").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def without_known_lines(texts: list[str], min_length: int = 1) -> list[str]:
    """The plain model: lines that are not blank, by what stands in them without the white space around it."""
    known: set[str] = set()
    found = []
    for text in texts:
        kept = []
        lines = text.split("\n")
        for line in lines:
            bare = line.strip()
            if bare and len(line.encode()) >= min_length:
                if bare in known:
                    continue
                known.add(bare)
            kept.append(line)
        found.append("\n".join(kept))
    return found


@pytest.mark.parametrize("blocksize", [None, "1KB"])
def test_lines_are_kept_where_they_stand_first(tmp_path: Path, blocksize: str | None) -> None:
    rng = random.Random(1)
    pool = [f"zeile {n} ä {'x' * rng.randrange(30)}" for n in range(60)]
    texts = ["\n".join(rng.choices(pool, k=rng.randrange(1, 6))) for _ in range(200)]
    expected = [text for text in without_known_lines(texts) if text.strip()]
    got = run(tmp_path, texts, LineDeduplication(), blocksize=blocksize)
    assert [row["text"] for row in got] == expected
    assert 0 < len(expected) < len(texts)


def test_blank_and_short_lines_are_left_alone(tmp_path: Path) -> None:
    texts = ["}\n\n  a long line of text  \nend", "}\n\na long line of text\nother"]
    got = run(tmp_path, texts, LineDeduplication(min_length=4))
    assert [row["text"] for row in got] == [texts[0], "}\n\nother"]


def test_white_space_around_a_line_makes_no_difference_and_what_stays_is_as_it_was(tmp_path: Path) -> None:
    texts = ["\n\n\tone\ntwo\n", "  one \n  three\n\n"]
    got = run(tmp_path, texts, LineDeduplication())
    assert [row["text"] for row in got] == ["\n\n\tone\ntwo\n", "  three\n\n"]


def test_paragraphs_go_whole(tmp_path: Path) -> None:
    texts = ["a b\nc\n\nd e", "x\n\na b\nc\n\ny", "a b\n\nc"]
    got = run(tmp_path, texts, ParagraphDeduplication())
    assert [row["text"] for row in got] == ["a b\nc\n\nd e", "x\n\ny", "a b\n\nc"]


def test_a_document_of_which_nothing_is_left_is_dropped_and_what_went_is_written_down(tmp_path: Path) -> None:
    got = run(tmp_path, ["same\nold", "new", "old\nsame", "old\nfresh"], LineDeduplication())
    assert [row["text"] for row in got] == ["same\nold", "new", "fresh"]
    excluded = [
        json.loads(line) for file in (tmp_path / "out" / "excluded").iterdir() for line in file.read_text().splitlines()
    ]
    assert [row["excluded_reason"] for row in excluded] == [NOTHING_LEFT]
    records = [row for file in (tmp_path / "out" / "duplicates").iterdir() for row in pq.read_table(file).to_pylist()]
    assert len(records) == 3
    first = f"{tmp_path}/in/a.jsonl#0"
    assert {record["survivor"] for record in records} == {first}
