"""The stage that looks for n-grams of a reference: what it drops, cuts and flags, and what it says of it."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill import Pipeline
from gristmill.errors import OutputChanged, PlanError
from gristmill.pipeline.fingerprint import describe_stage
from gristmill.stages.decontamination import FuzzyDecontamination, NgramDecontamination
from gristmill.stages.registry import registered
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch

QUESTION = "Which of these four planets is the farthest from the Sun at the time of its perihelion passage?"
SHORT = "How many legs does an adult spider have altogether?"
PADDING = "grain is milled between two stones that never touch " * 10


def batch(*texts: str) -> DocumentBatch:
    return DocumentBatch(data=pa.table({"text": pa.array(texts, pa.large_string())}))


def kept(stage: NgramDecontamination, *texts: str) -> list[str]:
    return stage.process(batch(*texts)).data.column("text").to_pylist()


def jsonl(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return path


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for path in sorted(folder.glob("part-*")) for line in path.read_text().splitlines()]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "bench.jsonl", {"text": QUESTION}, {"text": SHORT}, {"text": "Yes."})


def test_a_document_with_a_question_of_the_reference_is_dropped_with_its_name(questions):
    text = PADDING + QUESTION.upper().replace(" ", "\n ") + " " + PADDING
    given = batch("clean", text, SHORT, "Yes.")
    left = NgramDecontamination(str(questions)).process(given)
    assert left.data.column("text").to_pylist() == ["clean", "Yes."]
    (dropped,) = left.account.dropped
    second = len(json.dumps({"text": QUESTION})) + 1
    assert list(dropped.reasons) == ["overlaps bench.jsonl#0", f"overlaps bench.jsonl#{second}"]
    assert list(dropped.scores or ()) == [float(len(QUESTION.split()) - 12), 1.0]


def test_thresholds_are_of_one_entry():
    words = QUESTION.split()
    part = " ".join(words[:14])  # two of the question's n-grams of 13 words
    texts = [part, " ".join(words[:13]), QUESTION]

    def stage(**options: object) -> NgramDecontamination:
        return NgramDecontamination(reference_texts=[QUESTION, "other " + part], **options)  # type: ignore[arg-type]

    assert kept(stage(), *texts) == []
    assert kept(stage(min_matches=2), *texts) == [texts[1]]
    assert kept(stage(min_share=0.6), *texts) == [texts[1]]
    assert kept(stage(min_share=0.7), *texts) == [part, texts[1]]
    share = stage(min_share=0.6).process(batch(part))
    assert list(share.account.dropped[0].reasons) == ["overlaps text#1"]
    assert list(share.account.dropped[0].scores or ()) == [2 / 3]


def test_phrases_that_many_entries_have_do_not_count():
    intro = "Read the following passage with care and then answer the question below in one word:"
    stage = {n: NgramDecontamination(reference_texts=[f"{intro} {k} {QUESTION}" for k in "abc"], max_frequency=n)
             for n in (2, 3)}  # fmt: skip
    assert kept(stage[3], intro, QUESTION) == []
    assert kept(stage[2], intro) == [intro]
    assert kept(stage[2], f"{intro} a {QUESTION}") == []


def test_short_entries_are_found_whole_but_not_single_words():
    reference = [SHORT, "Yes."]
    assert kept(NgramDecontamination(reference_texts=reference), "a " + SHORT, SHORT[:-12], "yes yes") == [
        SHORT[:-12],
        "yes yes",
    ]
    assert kept(NgramDecontamination(reference_texts=reference, min_words=1), "oh yes!", "oh no") == ["oh no"]


def test_case_and_signs_matter_if_told_so():
    stage = NgramDecontamination(reference_texts=[SHORT], normalize=False)
    assert kept(stage, SHORT, SHORT.lower(), SHORT.replace(" ", "\t")) == [SHORT.lower()]


def test_several_fields_and_lists_belong_to_one_entry(tmp_path):
    choices = ["the number of legs that a spider has is eight", "six"]
    path = jsonl(tmp_path / "quiz.jsonl", {"question": "Legs?", "choices": choices}, {"question": SHORT})
    stage = NgramDecontamination(str(path), reference_field=["question", "choices"])
    left = stage.process(batch(choices[0], "clean", SHORT))
    assert left.data.column("text").to_pylist() == ["clean"]
    assert [reason.partition("#")[0] for reason in left.account.dropped[0].reasons] == ["overlaps quiz.jsonl"] * 2


@pytest.mark.parametrize("other", [[SHORT, None], ["", SHORT], [None, SHORT]], ids=str)
def test_a_field_is_a_text_in_some_records_and_a_list_with_gaps_in_others(other, tmp_path):
    broken = QUESTION.replace(" ", "\n")
    path = jsonl(tmp_path / "quiz.jsonl", {"text": broken}, {"text": other}, {"text": None}, {"text": [None]}, {})
    assert kept(NgramDecontamination(str(path)), QUESTION, SHORT, "clean") == ["clean"]
    assert kept(NgramDecontamination(str(path), normalize=False), broken, QUESTION, SHORT) == []


def test_a_cut_takes_a_window_with_it_and_leaves_the_rest():
    before, after = "один " * 100, "два " * 100
    text = before + QUESTION + " " + after
    stage = NgramDecontamination(reference_texts=[QUESTION], action="cut")
    left = stage.process(batch("clean", text))
    assert left.data.column("text").to_pylist() == ["clean", before[:-200] + "\n\n" + (" " + after)[199:]]
    assert left.account.counters["documents cut"] == 1


def test_a_document_cut_into_no_piece_or_too_many_is_dropped():
    many = PADDING + (QUESTION + PADDING) * 3
    stage = NgramDecontamination(reference_texts=[QUESTION], action="cut", cut_window=10, max_pieces=3)
    left = stage.process(batch(QUESTION + " and little more", many, PADDING + QUESTION + PADDING))
    assert left.num_items == 1
    assert list(left.account.dropped[0].reasons) == [
        "overlaps text#0: nothing would be left",
        "overlaps text#0: 4 pieces would be left",
    ]


def test_flags_name_the_entry_and_nothing_is_dropped():
    stage = NgramDecontamination(reference_texts=["none of this is there to be found", SHORT], action="flag",
                                 flag_field="seen_in", score_field="seen")  # fmt: skip
    table = stage.process(batch("clean", SHORT)).data
    assert table.column("seen_in").to_pylist() == [None, "text#1"]
    assert table.column("seen").to_pylist() == [0, 1]


def test_any_file_that_readers_read_can_be_the_reference(tmp_path):
    pq.write_table(pa.table({"text": [QUESTION, None]}), tmp_path / "b.parquet")
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(json.dumps({"text": SHORT}) + "\n")
    for path in (str(tmp_path), str(tmp_path / "*"), [tmp_path / "a.jsonl.gz", str(tmp_path / "b.parquet")]):
        left = NgramDecontamination(path).process(batch(QUESTION, SHORT, "clean"))
        assert left.data.column("text").to_pylist() == ["clean"]
        assert list(left.account.dropped[0].reasons) == ["overlaps b.parquet#0", "overlaps a.jsonl.gz#0"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"text": "fine"}\n{"text": \n', "reference {path}: the record at 17 is bad: not valid JSON"),
        ('{"question": "here"}\n', "reference {path}: no record has a text in the field 'text'"),
        ('{"text": 3}\n', "reference {path}: the field 'text' holds int64, not text"),
        (
            '{"text": "fine"}\n{"text": 42}\n',
            "reference {path}: the field 'text' of the record at 17 is 42, not a text",
        ),
        (
            '{"text": {"a": ["b"]}}\n',
            """reference {path}: the field 'text' of the record at 0 is {{"a": ["b"]}}, not""",
        ),
        ('{"text": ["a"]}\n{"text": [["b"]]}\n', "the field 'text' of the record at 16 is [[\"b\"]], not a text"),
        ('{"text": "a"}\n{"text": ["b", 1]}\n', "the field 'text' of the record at 14 is [\"b\", 1], not a text"),
        ('{"text": " "}\n', "the reference {path} has no text"),
        ("", "the reference {path} has no text"),
    ],
)
def test_a_damaged_reference_is_reported_before_anything_starts(content, words, tmp_path):
    path = tmp_path / "bench.jsonl"
    path.write_text(content)
    source = jsonl(tmp_path / "in.jsonl", {"text": "a"})
    stages = [JsonlReader(str(source)), NgramDecontamination(str(path)), JsonlWriter(str(tmp_path / "out"))]
    with pytest.raises(PlanError) as error:
        Pipeline("p", stages=stages).run()
    assert words.format(path=path) in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_missing_reference_is_reported_before_anything_starts(tmp_path):
    stage = NgramDecontamination(str(tmp_path / "nowhere.jsonl"))
    with pytest.raises(PlanError, match=r"nowhere\.jsonl' does not exist"):
        stage.linked([], [])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "give reference_path or reference_texts"),
        ({"reference_path": "a", "reference_texts": ["b"]}, "one of the two"),
        ({"reference_texts": "one text"}, "is a list of texts"),
        ({"reference_texts": ["a"], "action": "hide"}, "'drop', 'cut', 'flag', not 'hide'"),
        ({"reference_texts": ["a"], "ngram": 0}, "ngram is a whole number from 1 on, not 0"),
        ({"reference_texts": ["a"], "min_share": 2}, "min_share is a share"),
        ({"reference_texts": ["a"], "action": "flag", "flag_field": "text"}, "must be different fields"),
        ({"reference_path": "a", "read_kwargs": {"lines": True}}, "'storage_options' only, not 'lines'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        NgramDecontamination(**arguments)


def test_a_stage_travels_without_its_reference(questions):
    stage = NgramDecontamination(str(questions))
    before = pickle.dumps(stage)
    stage.setup()
    sent = pickle.dumps(stage)
    assert sent == before
    assert kept(pickle.loads(sent), QUESTION, "clean") == ["clean"]


def test_a_pipeline_in_yaml_runs_and_resumes_only_with_the_same_reference(questions, tmp_path):
    source = jsonl(tmp_path / "in.jsonl", *({"id": i, "text": t} for i, t in enumerate(["clean", QUESTION, SHORT])))
    out = tmp_path / "out"
    pipeline = Pipeline.from_yaml(
        f"name: p\nstages:\n- JsonlReader: {{file_paths: {source}}}\n"
        f"- NgramDecontamination: {{reference_path: ['{tmp_path}/bench*.jsonl']}}\n"
        f"- JsonlWriter: {{path: {out}}}\n"
    )
    result = pipeline.run()
    assert [record["id"] for record in lines(out)] == [0]
    excluded = {record["id"]: record for record in lines(out / "excluded")}
    assert excluded[1]["excluded_reason"] == "overlaps bench.jsonl#0" and excluded[1]["excluded_score"] == 6
    assert result.ledger.total().dropped[("NgramDecontamination", "overlaps bench.jsonl#0")] == 1
    questions.write_text(questions.read_text() + "\n")
    with pytest.raises(OutputChanged, match=r"file \S+ of reference_path has changed"):
        pipeline.run()


def test_the_fingerprint_has_the_files_of_lists_globs_and_folders(questions, tmp_path):
    content = hashlib.sha256(questions.read_bytes()).hexdigest()[:16]
    stamp = ["bench.jsonl", questions.stat().st_size, content]
    for path in (str(questions), [str(questions)], f"{tmp_path}/b*.jsonl"):
        assert describe_stage(NgramDecontamination(path))["files"] == {"reference_path": [stamp]}
    jsonl(tmp_path / "more.jsonl", {"text": "x"})
    assert len(describe_stage(NgramDecontamination(f"{tmp_path}/*.jsonl"))["files"]["reference_path"]) == 2


def test_it_is_known_by_name():
    assert registered("NgramDecontamination") is NgramDecontamination


@pytest.mark.parametrize("stage", [NgramDecontamination, FuzzyDecontamination])
def test_a_reference_without_usable_entries_does_not_start_and_short_entries_are_reported(tmp_path, capsys, stage):
    source = jsonl(tmp_path / "in.jsonl", {"text": PADDING})
    bench = jsonl(tmp_path / "bench.jsonl", {"question": QUESTION * 2, "choices": ["a", "b"]}, {"question": "Yes."})

    def plan(**arguments):
        looking = stage(**({"reference_path": str(bench), "reference_field": "question"} | arguments))
        Pipeline("x", stages=[JsonlReader(str(source)), looking, JsonlWriter(tmp_path / "out")]).plan()
        return capsys.readouterr().err

    with pytest.raises(PlanError, match="has a text in the field 'chocies'"):
        plan(reference_field=["question", "chocies"])
    with pytest.raises(PlanError, match=f"'{stage.__name__}' needs the field 'body'"):
        plan(text_field="body")
    with pytest.raises(PlanError, match="none of the 2 entries of the reference is long enough"):
        plan(reference_path=None, reference_texts=["a b", "c"])
    assert "1 of the 2 entries of the reference are too short" in plan()
    assert not plan(reference_path=None, reference_texts=[QUESTION * 2, QUESTION * 2])


@pytest.mark.parametrize("action", ["cut", "drop"])
@pytest.mark.parametrize("other", [42, {"a": QUESTION}, None])
def test_values_that_are_no_text_stay_and_others_are_compared_as_text(tmp_path, action, other):
    bodies = [PADDING + "\n\n" + QUESTION.replace(" ", "\n") + PADDING, other, 'clean, "quoted"']
    source = jsonl(tmp_path / "in.jsonl", *({"body": body} for body in bodies))
    stage = NgramDecontamination(reference_texts=[QUESTION], text_field="body", action=action, min_piece=50)
    reader = JsonlReader(str(source), text_field=None)
    Pipeline("x", stages=[reader, stage, JsonlWriter(tmp_path / "out")]).run()
    left = [record["body"] for record in lines(tmp_path / "out")]
    assert left[-2:] == bodies[1:] and len(left) == (3 if action == "cut" else 2)
    if action == "cut":
        assert "planets" not in left[0] and '"' not in left[0] and left[0].split() and PADDING[:100] in left[0]
