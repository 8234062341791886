"""One document replayed."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from gristmill.cli.main import main
from gristmill.errors import PipelineError
from gristmill.pipeline.explain import explain
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.filters import NonAlphaNumericFilter, ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.stages.text.modifiers import Modify, NewlineNormalizer
from gristmill.tasks import DocumentBatch

TEXTS = ["one two three", "alphabet better gammas delta\n\n\n\n\nepsilons zeta", "!!! ??? ... !!! ??? ### $$$"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    lines = [json.dumps({"id": f"d{i}", "text": text}) for i, text in enumerate(TEXTS)]
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def stages(corpus: Path):
    filters = ScoreFilter([WordCountFilter(min_words=4), NonAlphaNumericFilter()])
    return [JsonlReader(str(corpus)), filters, Modify(NewlineNormalizer()), JsonlWriter(str(corpus.parent / "out"))]


def test_all_filters_speak_and_the_first_that_drops_decides(corpus):
    found = explain(stages(corpus), "d2")
    assert [f.keep for f in found.stages[0].findings] == [True, False]
    found = explain(stages(corpus), "d0")
    assert found.stages[0].verdict == "dropped: too few words" and not found.kept
    assert found.stages[0].findings[0].score == 3 and "4" in found.stages[0].findings[0].rule
    assert found.stages[0].features["words.count"] == 3


def test_changes_of_a_stage_are_shown(corpus):
    found = explain(stages(corpus), "d1")
    assert found.kept and found.stages[1].verdict == "changed: text"
    assert found.stages[1].changes["text"] == (TEXTS[1], "alphabet better gammas delta\n\nepsilons zeta")


@processing_stage(name="rename")
def rename(batch: DocumentBatch) -> DocumentBatch:
    names = ["name" if name == "id" else name for name in batch.data.column_names]
    return DocumentBatch(batch.data.rename_columns(names).drop_columns(["text"]))


@processing_stage(name="asked", max_in_flight=4)
async def asked(batch: DocumentBatch) -> DocumentBatch | None:
    await asyncio.sleep(0.001)
    if batch.data["id"][0].as_py() == "d0":
        return None
    return DocumentBatch(batch.data.append_column("answer", [["yes"]]))


@processing_stage(name="parts")
async def parts(batch: DocumentBatch):
    for _ in range(2):
        await asyncio.sleep(0)
        yield DocumentBatch(batch.data)


def test_asynchronous_stages_are_replayed_too(corpus):
    planned = [JsonlReader(str(corpus)), asked, parts, JsonlWriter(str(corpus.parent / "out"))]
    found = explain(planned, "d1")
    assert [stage.verdict for stage in found.stages] == ["changed: answer", "became 2 documents"]
    assert found.stages[0].changes["answer"] == (None, "yes")
    assert explain(planned, "d0").stages[0].verdict == "dropped: unspecified"


def test_columns_that_a_stage_removes_are_shown(corpus):
    found = explain([JsonlReader(str(corpus)), rename, JsonlWriter(str(corpus.parent / "out"))], "d1")
    assert found.stages[0].verdict == "changed: name; removed: id, text" and found.kept


def test_a_document_is_found_by_its_place(corpus):
    position = corpus.read_bytes().index(b'{"id": "d1"')
    assert explain(stages(corpus), f"{corpus}#{position}").fields["id"] == "d1"
    with pytest.raises(PipelineError, match="no document"):
        explain(stages(corpus), f"{corpus}#{position + 1}")
    with pytest.raises(PipelineError, match="no document 'd9'"):
        explain(stages(corpus), "d9")


class Stream(JsonlReader):
    def process(self, task):
        yield super().process(task)
        raise AssertionError("it was read on")


def test_a_stream_is_read_no_further_than_the_document(corpus):
    assert explain([Stream(str(corpus))], "d1").fields["id"] == "d1"


@processing_stage
def lose_all(task: DocumentBatch) -> DocumentBatch | None:
    return None


def test_a_document_that_vanishes_has_no_reason(corpus):
    reader, _, _, writer = stages(corpus)
    assert explain([reader, lose_all, writer], "d1").stages[0].verdict == "dropped: unspecified"


YAML = """
name: small
stages:
  - JsonlReader: {{file_paths: {corpus}}}
  - ScoreFilter: {{filter_obj: {{WordCountFilter: {{min_words: 4}}}}}}
  - JsonlWriter: {{path: {out}}}
"""


def test_the_output_remembers_its_pipeline(corpus, tmp_path, capsys):
    out = tmp_path / "out"
    (tmp_path / "p.yaml").write_text(YAML.format(corpus=corpus, out=out))
    assert main(["run", str(tmp_path / "p.yaml"), "--view", "off"]) == 0
    capsys.readouterr()
    assert main(["explain", str(out), "d0"]) == 0
    shown = capsys.readouterr().out
    assert "DROP word_count" in shown and "too few words" in shown and shown.rstrip().endswith("dropped")
    assert main(["explain", str(tmp_path), "d0"]) == 2
    assert "is not the output of a run" in capsys.readouterr().err


def remembering(corpus: Path, text: str) -> Path:
    """An output folder whose run remembers this pipeline."""
    out = corpus.parent / "given"
    (out / "_gristmill").mkdir(parents=True)
    (out / "_gristmill" / "run.json").write_text(json.dumps({"pipeline": text}))
    return out


def test_code_that_an_output_folder_names_is_not_run_and_code_that_the_user_names_is(corpus, capsys, monkeypatch):
    monkeypatch.chdir(corpus.parent)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "planted", raising=False)
    (corpus.parent / "planted.py").write_text("open('was_run', 'w').close()\n")
    text = f"imports: [planted]\nstages:\n  - JsonlReader: {{file_paths: {corpus}}}\n"
    out = remembering(corpus, text)
    assert main(["explain", str(out), "d1"]) == 2
    told = capsys.readouterr().err
    assert "imports planted" in told and "--pipeline FILE.yaml" in told
    assert not (corpus.parent / "was_run").exists()
    (corpus.parent / "mine.yaml").write_text(text)
    assert main(["explain", str(out), "d1", "--pipeline", "mine.yaml"]) == 0
    assert capsys.readouterr().out.startswith("mine.yaml imports planted\n")
    assert (corpus.parent / "was_run").exists()


def test_a_change_far_from_the_beginning_is_shown(tmp_path, capsys):
    corpus = tmp_path / "in.jsonl"
    corpus.write_text(json.dumps({"id": "d", "text": "same " * 500 + "here\n\n\n\n\nit is"}) + "\n")
    reader, writer = {"JsonlReader": {"file_paths": str(corpus)}}, {"JsonlWriter": {"path": str(tmp_path / "out")}}
    pipeline = {"name": "p", "stages": [reader, {"Modify": {"modifier_fn": "NewlineNormalizer"}}, writer]}
    (tmp_path / "p.yaml").write_text(json.dumps(pipeline))
    assert main(["run", str(tmp_path / "p.yaml")]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "out"), "d"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert r"here\n\n\n\n\nit is" in said and r"here\n\nit is" in said
