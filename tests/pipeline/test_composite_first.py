"""Pipelines whose first stage is a composite that begins with a reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stages.deduplication.corpora import execute, lines_of, write_jsonl

from gristmill.cli.main import main
from gristmill.pipeline import Pipeline
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter


class Load(CompositeStage):
    """Reads documents and drops short ones."""

    name = "load"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def decompose(self) -> list[ProcessingStage]:
        return [JsonlReader(str(self.folder), blocksize=300), ScoreFilter(WordCountFilter(min_words=3))]


class Everything(Load):
    """The whole pipeline in one composite, with another inside."""

    name = "everything"

    def decompose(self) -> list[ProcessingStage]:
        return [Load(self.folder), ExactDeduplication(), JsonlWriter(str(self.folder.parent / "out"))]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    texts = [f"this is document {n // 2}" for n in range(40)] + ["short"] * 3
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": text, "n": n} for n, text in enumerate(texts)])
    return tmp_path / "in"


def test_a_composite_reads_for_a_stage_that_needs_all_documents(corpus, tmp_path):
    result = execute(Load(corpus), ExactDeduplication(), JsonlWriter(str(tmp_path / "out")))
    assert result.ledger.total().documents == 43
    assert [record["n"] for record in lines_of(tmp_path / "out")] == list(range(0, 40, 2))
    again = execute(Load(corpus), ExactDeduplication(), JsonlWriter(str(tmp_path / "out")))
    assert again.ledger.resumed == len(again.ledger.blocks) > 0


def test_the_stage_that_needs_all_documents_may_be_inside_a_composite(corpus, tmp_path):
    execute(Everything(corpus))
    assert [record["n"] for record in lines_of(tmp_path / "out")] == list(range(0, 40, 2))


def test_a_composite_reads_for_a_pipeline_in_one_piece_which_resumes(corpus, tmp_path):
    result = execute(Load(corpus), JsonlWriter(str(tmp_path / "out")))
    assert result.ledger.total().kept == 40
    again = execute(Load(corpus), JsonlWriter(str(tmp_path / "out")))
    assert again.ledger.resumed == len(again.ledger.blocks) > 1


def test_a_composite_that_reads_nothing_is_refused_in_words(tmp_path):
    class NoReader(CompositeStage):
        def decompose(self) -> list[ProcessingStage]:
            return [ScoreFilter(WordCountFilter()), ExactDeduplication(), JsonlWriter(str(tmp_path / "out"))]

    with pytest.raises(Exception, match="'ExactDeduplication' needs all documents: begin the pipeline with a reader"):
        Pipeline("p", stages=[NoReader()]).run()


def test_limits_and_a_dry_run_find_the_reader_in_a_composite(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.py").write_text(
        "from pathlib import Path\n"
        "from tests.pipeline.test_composite_first import Everything\n"
        "from gristmill.pipeline import Pipeline\n"
        "pipeline = Pipeline('p', stages=[Everything(Path('in').resolve())])\n"
    )
    assert main(["run", "p.py", "--dry-run", "--limit", "10"]) == 0
    shown = capsys.readouterr().out
    assert "of 1 file" in shown and "reads only the first 10 documents" in shown
    assert main(["run", "p.py", "--limit", "10", "--view", "off"]) == 0
    assert [record["n"] for record in lines_of(tmp_path / "out")] == [0, 2, 4, 6, 8]
