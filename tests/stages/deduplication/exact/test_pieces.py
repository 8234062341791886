"""Lines and paragraphs that were there before, against a plain model."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.stages.deduplication.corpora import execute, lines_of, records_of, write_jsonl

from gristmill.pipeline.explain import explain
from gristmill.stages.deduplication.exact import LineDeduplication, ParagraphDeduplication
from gristmill.stages.deduplication.exact.pieces import NOTHING_LEFT, PieceDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID


def run(folder: Path, texts: list[str], stage: PieceDeduplication, **reader: Any) -> list[str]:
    """The texts that are left, of two files."""
    half = len(texts) // 2
    for name, some in (("a", texts[:half]), ("b", texts[half:])):
        write_jsonl(folder / f"in/{name}.jsonl", [{"id": f"{name}{i}", "text": text} for i, text in enumerate(some)])
    execute(*stages(folder, stage, **reader))
    return [row["text"] for row in lines_of(folder / "out")]


def stages(folder: Path, stage: PieceDeduplication, **reader: Any) -> list[Any]:
    return [JsonlReader(str(folder / "in"), **reader), stage, JsonlWriter(str(folder / "out"))]


def lines(text: str) -> list[str]:
    """With their ends. What Python takes for more line ends, `str.splitlines` does, are none."""
    found = [line + "\n" for line in text.split("\n")]
    found[-1] = found[-1][:-1]
    return found


def paragraphs(text: str) -> list[str]:
    """Runs of lines that are not blank, each with the blank lines after it; those at the beginning alone."""
    found = [""]
    blank = True
    for line in lines(text):
        if line.strip() and blank:
            found.append("")
        blank = not line.strip()
        found[-1] += line
    return found


def without_known(texts: list[str], pieces: Callable[[str], list[str]], min_length: int = 1) -> list[str]:
    """The plain model: what was there before goes, and all that stays is as it was."""
    known: set[str] = set()
    found = []
    for text in texts:
        kept = ""
        for piece in pieces(text):
            bare = piece.strip()
            if bare and len(bare.encode()) >= min_length:
                if bare in known:
                    continue
                known.add(bare)
            kept += piece
        found.append(kept)
    return found


@pytest.mark.parametrize(("stage", "pieces"), [(LineDeduplication, lines), (ParagraphDeduplication, paragraphs)])
@pytest.mark.parametrize(("blocksize", "min_length"), [(None, 1), ("1KB", 3)])
def test_a_piece_is_removed_with_its_end_and_the_rest_is_unchanged(tmp_path, stage, pieces, blocksize, min_length):
    rng = random.Random(1)
    pool = [
        "a",
        "b ä",
        "  a",
        "c\t",
        "long line",
        "d\x0be",
        "\u2028f",
        "",
        " ",
        "\t\u3000",
        *(f"{n}" * 3 for n in range(90)),
    ]
    texts = []
    for _ in range(400):
        some = rng.choices(pool, k=rng.randrange(1, 7))
        texts.append("".join(line + rng.choice(["\n", "\n", "\r\n", "\n\n", "\r\n\r\n"]) for line in some))
        texts[-1] = texts[-1].rstrip("\r\n") if rng.random() < 0.5 else texts[-1]
    model = without_known(texts, pieces, min_length)
    left = [text for text, before in zip(model, texts, strict=True) if text.strip() or not before.strip()]
    assert run(tmp_path, texts, stage(min_length=min_length), blocksize=blocksize) == left
    assert 0 < len(left) < len(texts) and left != texts[: len(left)]


def test_the_blank_line_after_a_removed_line_stays(tmp_path):
    texts = ["A one\nB two", "X1\n\nP q\nB two\n\nY1", "A one\r\nZ\r\nB two\r\n", "new\nB two"]
    assert run(tmp_path, texts, LineDeduplication()) == [texts[0], "X1\n\nP q\n\nY1", "Z\r\n", "new\n"]


def test_blank_and_short_lines_are_left_alone(tmp_path: Path) -> None:
    texts = ["}\n\n  a long line of text  \nend", "}\n\na long line of text\nother"]
    assert run(tmp_path, texts, LineDeduplication(min_length=4)) == [texts[0], "}\n\nother"]


def test_paragraphs_are_removed_whole_with_the_blank_lines_after_them(tmp_path: Path) -> None:
    texts = ["a b\nc\n\nd e", "x\n\n \na b\nc\n\n\ny", "a b\n\nc"]
    assert run(tmp_path, texts, ParagraphDeduplication()) == [texts[0], "x\n\n \ny", texts[2]]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_document_without_any_line_left_is_dropped_as_it_was(tmp_path: Path, workers: int) -> None:
    texts = ["same\nold", "new", "old\n\nsame", "old\nfresh"]
    write_jsonl(tmp_path / "in/a.jsonl", [{"id": n, "text": text, "x": [n]} for n, text in enumerate(texts)])
    execute(*stages(tmp_path, LineDeduplication()), workers=workers)
    assert [row["text"] for row in lines_of(tmp_path / "out")] == ["same\nold", "new", "fresh"]
    (dropped,) = lines_of(tmp_path / "out", "excluded")
    assert dropped["excluded_reason"] == NOTHING_LEFT
    assert (dropped["id"], dropped["text"], dropped["x"]) == (2, "old\n\nsame", [2])
    records = records_of(tmp_path / "out")
    assert {record["survivor"] for record in records} == {f"{tmp_path}/in/a.jsonl#0"}
    assert [(record["row"], record["piece"]) for record in records] == [(2, 0), (2, 1), (3, 0)]


def test_explain_shows_the_outcome_and_the_rest_of_a_document(tmp_path: Path) -> None:
    texts = ["same\nold", "new", "old\n\nsame", "x\nold\nfresh\nsame", "old\nshort"]
    write_jsonl(tmp_path / "in/a.jsonl", [{"id": f"d{n}", "text": text} for n, text in enumerate(texts)])
    reader, stage, writer = stages(tmp_path, LineDeduplication())
    pipeline = [reader, stage, ScoreFilter(WordCountFilter(min_words=2)), writer]
    execute(*pipeline)
    found = [explain(pipeline, f"d{n}") for n in range(5)]
    verdicts = [[report.verdict for report in one.stages] for one in found]
    assert verdicts[0] == ["kept", "kept"] and verdicts[3] == ["changed: text", "kept"]
    assert verdicts[2][0] == f"dropped: {NOTHING_LEFT}"
    assert verdicts[4] == ["changed: text", "dropped: too few words"]
    assert found[3].stages[0].changes == {"text": ("x\nold\nfresh\nsame", "x\nfresh\n")}
    assert found[0].stages[0].counted == {"lines removed for which this one stays": 5}
    kept = {row["id"] for row in lines_of(tmp_path / "out")}
    assert {f"d{n}" for n, one in enumerate(found) if one.kept} == kept == {"d0", "d3"}


def test_records_of_other_documents_are_not_acted_upon(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in/a.jsonl", [{"text": "old"}, {"text": "old\nnew"}])
    folder = Folder(str(tmp_path))
    folder.write("removed.json", b'{"part-000000": [-1, 1]}')
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ["a#4"], "survivor": ["a#0"], "row": [1], "piece": [0]}), sink)
    folder.write("part-000000.parquet", sink.getvalue())
    stage = LineDeduplication().after_barrier(folder, folder)
    stage.setup()
    texts = ["old", "old\nnew"]
    theirs = DocumentBatch(pa.table({"text": texts, ID: ["a#0", "a#4"]}), task_id="0")
    assert stage.process(theirs).data.column("text").to_pylist() == ["old", "new"]
    for ids in (["a#0", "a#5"], ["a#4"]):
        with pytest.raises(ValueError, match="start over with --fresh"):
            stage.process(DocumentBatch(pa.table({"text": texts[: len(ids)], ID: ids}), task_id="0"))
