"""Mistakes and needs of a new user with data of their own: other field names, relative paths, misspelt options."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gristmill import Pipeline
from gristmill.backends.local import LocalExecutor
from gristmill.cli.main import main
from gristmill.errors import OutputChanged, PipelineFailed
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch


def pipeline(folder: Path, is_deduplicated: bool = True, **reader: int) -> Pipeline:
    stages = [
        JsonlReader(str(folder / "in"), text_field="body", **reader),
        ScoreFilter(WordCountFilter(min_words=2), text_field="body").with_(name="words"),
        *([ExactDeduplication(text_field="body")] if is_deduplicated else []),
        JsonlWriter(str(folder / "out")),
    ]
    return Pipeline("mine", stages=stages)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    bodies = ["one", "two words", "three words here", "two words", "four words are here"]
    lines = [json.dumps({"key": f"k{n}", "body": body}) for n, body in enumerate(bodies)]
    for name in "ab":
        (tmp_path / "in" / f"{name}.jsonl").write_text("\n".join([*lines, '{"key": "bad"}', ""]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("is_deduplicated", [False, True])
def test_dropped_and_stats_take_the_text_from_the_field_that_the_run_has_read(folder, capsys, is_deduplicated):
    pipeline(folder, is_deduplicated).run()
    assert main(["dropped", "out", "--stage", "words", "--id-field", "key"]) == 0
    shown = capsys.readouterr().out
    assert 'k0: dropped by words: too few words (score 1)\n  "one"' in shown and "No field" not in shown
    assert main(["stats", "out", "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [group["documents"] for group in groups] == [3 if is_deduplicated else 8]


def test_dropped_names_the_option_for_a_field_that_no_document_has(folder, capsys):
    pipeline(folder).run()
    assert main(["dropped", "out", "--stage", "words", "--text-field", "words"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no 'id': dropped by words" in shown and "no text in 'words'" in shown
    assert "No field 'id'. Name another one with --id-field: key, body" in shown
    assert "No field 'words'. Name another one with --text-field: key, body" in shown


def test_stats_names_its_option_for_the_text(folder, capsys):
    assert main(["stats", "in"]) == 2
    error = capsys.readouterr().err
    assert "have no field 'text'; they have: body, key." in error
    assert "--text-field FIELD" in error and "text_field=" not in error


def test_stats_of_languages_without_the_extra_reads_nothing(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "fasttext", None)
    monkeypatch.setattr(LocalExecutor, "execute", None)
    assert main(["stats", "in", "--language", "--text-field", "body"]) == 2
    assert "pip install 'gristmill[text]'" in capsys.readouterr().err


def test_explain_takes_a_relative_path(folder, capsys):
    pipeline(folder).run()
    place = (folder / "in" / "a.jsonl").read_bytes().index(b'{"key": "k2"')
    for ident in (f"in/a.jsonl#{place}", f"{folder}/in/a.jsonl#{place}"):
        assert main(["explain", "out", ident]) == 0
        assert "key: 'k2'" in capsys.readouterr().out


def test_explain_shows_why_a_record_is_in_quarantine(folder, capsys):
    pipeline(folder).run()
    place = (folder / "in" / "b.jsonl").read_bytes().index(b'{"key": "bad"')
    assert main(["explain", "out", f"in/b.jsonl#{place}"]) == 2
    assert "is in quarantine, and no stage processed it: no field 'body'" in capsys.readouterr().err
    assert main(["explain", "out", f"in/b.jsonl#{place + 1}"]) == 2
    error = capsys.readouterr().err
    assert "no document '" in error and "in/b.jsonl#" in error and "--id-field" in error


def test_explain_shows_that_a_dropped_document_reached_no_later_stage(folder, capsys):
    pipeline(folder).run()
    assert main(["explain", "out", "k0", "--id-field", "key"]) == 0
    shown = capsys.readouterr().out
    assert "1. words: dropped" in shown
    assert "2. ExactDeduplication (not reached): not compared: it was dropped before" in shown
    assert main(["explain", "out", "k2", "--id-field", "key"]) == 0
    shown = capsys.readouterr().out
    assert "2. ExactDeduplication: kept" in shown and "not reached" not in shown


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["rnu", "p.yaml"], "there is no command 'rnu'. Did you mean 'run'; see 'gristmill --help'"),
        (["zzz"], "there is no command 'zzz'. There are: run, explain,"),
        (["run", "p.yaml", "--dryrun"], "arguments: --dryrun. Did you mean '--dry-run'; see 'gristmill run --help'"),
        (["run", "p.yaml", "--dryrun=1"], "arguments: --dryrun=1. Did you mean '--dry-run'; see 'gristmill run"),
        (["stats", "in", "--zzz"], "unrecognized arguments: --zzz; see 'gristmill stats --help'"),
    ],
)
def test_wrong_commands_and_options_have_a_hint(capsys, args, says):
    with pytest.raises(SystemExit) as stop:
        main(args)
    error = capsys.readouterr().err
    assert stop.value.code == 2 and says in error and error.count("\n") == 1


@pytest.mark.parametrize("name", ["words", "word_count"])
def test_what_if_suggests_thresholds_of_the_stage_or_rule_that_is_named(folder, capsys, name):
    pipeline(folder).run()
    assert main(["what-if", "out", f"{name}=3"]) == 2
    error = capsys.readouterr().err
    assert "Did you mean words.word_count.min_words or words.word_count.max_words? There are:" in error


def test_another_limit_is_the_only_difference(folder):
    pipeline(folder, is_deduplicated=False).run()
    with pytest.raises(OutputChanged) as error:
        pipeline(folder, is_deduplicated=False, limit=2).run()
    assert "arguments.limit was null, now it is 2" in str(error.value) and "gone" not in str(error.value)


@pytest.mark.parametrize("is_deduplicated", [False, True])
def test_the_output_of_a_run_with_or_without_phases_is_named_as_such(folder, is_deduplicated):
    pipeline(folder, is_deduplicated).run()
    with pytest.raises(OutputChanged, match=r"had (a|no) stage that needs all documents") as error:
        pipeline(folder, not is_deduplicated).run()
    assert "class" not in str(error.value) and "--fresh" in str(error.value)
    assert pipeline(folder, not is_deduplicated).run(fresh=True).ok


def test_another_stage_is_named_without_its_description(folder):
    pipeline(folder, is_deduplicated=False).run()
    other = [
        JsonlReader(str(folder / "in"), text_field="body"),
        ScoreFilter(WordCountFilter(min_words=2), text_field="body").with_(name="length"),
        JsonlWriter(str(folder / "out")),
    ]
    with pytest.raises(OutputChanged, match="stage 2 was 'words', now it is 'length'\n"):
        Pipeline("mine", stages=other).run()


def test_a_filter_in_the_place_of_a_stage_is_shown_in_its_stage(folder, capsys):
    stages = "- JsonlReader: {file_paths: in/}\n- WordCountFilter: {min_words: 2}\n- NewlineNormalizer: {}\n"
    Path("p.yaml").write_text(f"stages:\n{stages}")
    assert main(["run", "p.yaml"]) == 2
    error = capsys.readouterr().err
    assert "as an argument, as in ScoreFilter: {filter_obj: WordCountFilter}" in error
    assert "as an argument, as in Modify: {modifier_fn: NewlineNormalizer}" in error


def test_stages_shows_the_text_field_of_recipes(capsys):
    assert main(["stages", "gopher-quality"]) == 0
    assert "recipe: {name: gopher-quality, text_field: body}" in capsys.readouterr().out
    assert main(["stages", "recipe"]) == 0
    assert capsys.readouterr().out.startswith("recipes, as 'recipe: NAME'\n")


def test_the_ends_of_names_are_listed_without_those_of_compression(folder, capsys):
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("text")
    Path("p.yaml").write_text("stages:\n- JsonlReader: {file_paths: texts/}\n- JsonlWriter: {path: out/}\n")
    assert main(["run", "p.yaml"]) == 1
    assert "a name that ends in .jsonl, .ndjson, .json, plain or compressed." in capsys.readouterr().err


@processing_stage(name="late")
def late(batch: DocumentBatch) -> DocumentBatch:
    if not Path("repaired").exists():
        raise RuntimeError("not repaired")
    return batch


def test_documents_of_earlier_runs_do_not_count_for_the_speed(folder):
    planned = pipeline(folder)
    stages = [*planned.stages[:-1], late, planned.stages[-1]]
    with pytest.raises(PipelineFailed):
        Pipeline("mine", stages=stages).run()
    Path("repaired").touch()
    result = Pipeline("mine", stages=stages).run(report=True)
    assert result.ledger.documents_resumed == result.ledger.total().documents == 12
    assert "12 of 12 documents were read by earlier runs" in result.summary()
    page = Path("out/_gristmill/report.html").read_text()
    assert "12 of 12 documents were read by earlier runs" in page and "documents per second" not in page
    assert pipeline(folder).run(fresh=True, report=True).ledger.documents_resumed == 0
    assert "documents per second" in Path("out/_gristmill/report.html").read_text()
