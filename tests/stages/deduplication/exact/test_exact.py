"""Exact deduplication from files to files, against a dict in plain Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.stages.deduplication.corpora import (
    deduplicate,
    execute,
    first_of_equals,
    lines_of,
    places,
    records_of,
    write_jsonl,
    written,
)
from tests.stages.deduplication.in_process import InProcess

from gristmill.errors import PipelineError, PlanError
from gristmill.pipeline.explain import explain
from gristmill.stages.deduplication.exact import ExactDeduplication, LineDeduplication
from gristmill.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.deduplication.remove import RemoveDuplicates
from gristmill.stages.spool import Spool
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "Crème brûlée à la façon d'Ångström") for form in ("NFC", "NFD"))
PREFIX = "the same beginning " * 200
ADVERSARIAL = [
    *("", " ", "", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", " "),
    *(COMPOSED, DECOMPOSED, COMPOSED, unicodedata.normalize("NFKC", "ﬁne"), "ﬁne", "fine"),
    *("trailing", "trailing ", "trailing\n", "trailing\n\n", " trailing", "trailing"),
    *("nul\0", "nul", "nul\0\0", "\0nul", "nul\0", "\0", "\0\0", "\0"),
    *("👩‍👩‍👧", "👩👩👧", "👩‍👩‍👧", "👍🏽", "👍", "👍🏽", "\U0010ffff", "\ufffd", "\U0010ffff"),
    *(PREFIX + "a", PREFIX + "b", PREFIX, PREFIX + "a", PREFIX[:-1]),
    *("a" * n for n in range(70)),
    *("a" * n for n in (0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65)),
    *("ab", "ba", "Ab", "aB", "AB", "ab"),
    '"quoted" \\ and /slashed/', '"quoted" \\ and /slashed/', "\u2028line\u2029", "\u2028line\u2029",
]  # fmt: skip


def check_records(source, out, survivors):
    """The records name each removed document once, with the one that stays and the first one of its kind.

    ``survivors`` gives, for each document of the source in order, the place of the one that stays.
    """
    ids = list(places(source))
    firsts = first_of_equals(list(places(source).values()))
    expected = [
        {"id": ids[n], "survivor": ids[stays], "cluster": ids[firsts[n]]}
        for n, stays in enumerate(survivors)
        if stays != n
    ]
    found = [{key: row[key] for key in ("id", "survivor", "cluster")} for row in records_of(out)]
    assert found == expected


@pytest.mark.parametrize("stage", [ExactDeduplication, FuzzyDeduplication, LineDeduplication])
def test_records_have_the_ids_that_users_know_documents_by_as_text(tmp_path, stage):
    # whole numbers in one block, strings in another, both in a third, and one that is missing
    one, two = "the first of two texts, long enough for a shingle", "another text that has nothing in common with it"
    blocks = [[(7, one), (8, two)], [("a", one), ("b", one)], [(9, two), ("c", one), (None, two)]]
    for n, block in enumerate(blocks):
        rows = [{"url": own, "text": text} if own is not None else {"text": text} for own, text in block]
        write_jsonl(tmp_path / f"in/{n}.jsonl", rows)
    deduplicate(tmp_path / "in", tmp_path / "out", stage(id_field="url"))
    ids = dict(zip(places(tmp_path / "in"), [own for block in blocks for own, _ in block], strict=True))
    found = records_of(tmp_path / "out")
    assert [row["document_id"] for row in found] == ["a", "b", "9", "c", None]
    assert [row["survivor_document_id"] for row in found] == ["7", "7", "8", "7", "8"]
    assert all(str(ids[row["survivor"]]) == row["survivor_document_id"] for row in found)


@pytest.mark.parametrize("stage", [ExactDeduplication, FuzzyDeduplication, LineDeduplication])
@pytest.mark.parametrize("blocksize", [None, 200])
def test_a_field_that_is_text_in_some_documents_only_is_refused_however_they_are_read(tmp_path, stage, blocksize):
    text = "a text of two\nlines that says enough for a shingle"
    bodies = [text, *(f"another text, the {n}th of them, long enough" for n in range(9)), {"a": 1}, text]
    write_jsonl(tmp_path / "in/a.jsonl", [{"text": "x", "body": body} for body in bodies])
    with pytest.raises(PipelineError, match=r"column 'body' holds \{\"a\": 1\}, which is not text"):
        deduplicate(tmp_path / "in", tmp_path / "out", stage(text_field="body"), blocksize=blocksize)
    # without that document the others are as expected
    few = ScoreFilter(WordCountFilter(min_words=5), text_field="body")
    reader = JsonlReader(str(tmp_path / "in"), blocksize=blocksize)
    execute(reader, few, stage(text_field="body"), JsonlWriter(str(tmp_path / "left")))
    assert [d["body"] for d in lines_of(tmp_path / "left")] == bodies[:-2]


@pytest.mark.parametrize("blocksize", [None, 30])
def test_ids_of_any_kind_are_the_same_text_however_they_are_read(tmp_path, blocksize):
    ids = [123456789016, 0.5, 1.0, 2.0**60, True, ["x", 1], {"a": None}, "7", 7, None, -1]
    write_jsonl(tmp_path / "in/a.jsonl", [{"url": one, "text": "same"} for one in ids])
    deduplicate(tmp_path / "in", tmp_path / "out", ExactDeduplication(id_field="url"), blocksize=blocksize)
    rest = ["0.5", "1", "1.152921504606847e+18", "true", '["x",1]', '{"a":null}', "7", "7", None, "-1"]
    assert [row["document_id"] for row in records_of(tmp_path / "out")] == rest
    assert {row["survivor_document_id"] for row in records_of(tmp_path / "out")} == {"123456789016"}


def test_ids_in_bytes_are_hexadecimal_digits_and_dates_as_they_are_written(tmp_path):
    kinds = {"raw": pa.array([b"\x01\xff"] * 2, pa.binary(2)), "day": pa.array([18_000] * 2, pa.date32())}
    for name, column in kinds.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"text": ["same"] * 2, "key": column}), tmp_path / name / "a.parquet")
        out = tmp_path / f"out-{name}"
        execute(ParquetReader(str(tmp_path / name)), ExactDeduplication(id_field="key"), ParquetWriter(str(out)))
    assert records_of(tmp_path / "out-raw")[0]["document_id"] == "01ff"
    assert records_of(tmp_path / "out-day")[0]["document_id"] == "2019-04-14"


def test_records_have_no_ids_without_an_id_field_and_a_missing_field_is_an_error(tmp_path):
    write_jsonl(tmp_path / "in/a.jsonl", [{"url": ["x"], "text": "same"}] * 2)
    deduplicate(tmp_path / "in", tmp_path / "out", ExactDeduplication())
    assert not {"document_id", "survivor_document_id"} & set(records_of(tmp_path / "out")[0])
    with pytest.raises(PipelineError, match=r"needs the field 'uri'.*Did you mean 'url'"):
        deduplicate(tmp_path / "in", tmp_path / "third", ExactDeduplication(id_field="uri"))


def test_survivors_agree_with_a_dict_for_unusual_texts(tmp_path):
    documents = [{"n": n, "text": text} for n, text in enumerate(ADVERSARIAL)]
    write_jsonl(tmp_path / "in/a.jsonl", documents[:60])
    write_jsonl(tmp_path / "in/b.jsonl", documents[60:])
    result = deduplicate(tmp_path / "in", tmp_path / "out", ExactDeduplication(), blocksize=3000, workers=2)
    firsts = first_of_equals(ADVERSARIAL)
    assert lines_of(tmp_path / "out") == [d for n, d in enumerate(documents) if firsts[n] == n]
    check_records(tmp_path / "in", tmp_path / "out", firsts)
    whole = result.ledger.total()
    assert len(list((tmp_path / "out").glob("part-*"))) > 3
    assert whole.documents == len(documents) and whole.kept + whole.dropped.total() == len(documents)
    assert dict(whole.dropped) == {("ExactDeduplication", "exact duplicate"): len(records_of(tmp_path / "out"))}


def test_texts_of_megabytes_that_differ_in_their_last_character_are_different(tmp_path):
    huge = "0123456789abcdef" * (5 << 16)
    write_jsonl(tmp_path / "in/a.jsonl", [{"text": t} for t in (huge, huge[:-1] + "g", "g" + huge[1:])])
    write_jsonl(tmp_path / "in/b.jsonl", [{"text": huge}])
    deduplicate(tmp_path / "in", tmp_path / "out", ExactDeduplication())
    assert [d["text"][0] + d["text"][-1] for d in lines_of(tmp_path / "out")] == ["0f", "0g", "gf"]
    check_records(tmp_path / "in", tmp_path / "out", [0, 1, 2, 0])


def test_a_text_is_the_same_however_json_escapes_it_and_the_first_line_stays_byte_for_byte(tmp_path):
    lines = [
        b'{"text": "caf\\u00e9 \\ud83d\\ude00 \\/ \\t"}',
        '{"text":"café 😀 / \\u0009", "x": 1}'.encode(),
        b'{ "x": [1,  2], "text" : "caf\xc3\xa9 \\uD83D\\uDE00 / \\t" }',
        b'{"text": "cafe"}',
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    deduplicate(tmp_path / "in", tmp_path / "out", ExactDeduplication())
    assert written(tmp_path / "out")["part-000000.jsonl"] == lines[0] + b"\n" + lines[3] + b"\n"
    assert [row["row"] for row in records_of(tmp_path / "out")] == [1, 2]


def test_every_removed_document_has_one_record_and_its_survivor_is_in_the_output(tmp_path):
    corpus = [{"text": f"text {n % 37}", "n": n} for n in range(300)]
    for name, begin in (("a", 0), ("b", 100), ("c", 200)):
        write_jsonl(tmp_path / f"in/{name}.jsonl", corpus[begin : begin + 100])
    result = deduplicate(tmp_path / "in", tmp_path / "out", ExactDeduplication(), blocksize=700)
    records, texts = records_of(tmp_path / "out"), places(tmp_path / "in")
    removed = [row["id"] for row in records]
    kept = set(texts) - set(removed)
    assert len(set(removed)) == len(removed) == 300 - 37
    assert {texts[ident] for ident in kept} == {d["text"] for d in lines_of(tmp_path / "out")} and len(kept) == 37
    assert all(row["survivor"] in kept and texts[row["survivor"]] == texts[row["id"]] for row in records)
    excluded = lines_of(tmp_path / "out", "excluded")
    assert Counter(d["n"] for d in excluded + lines_of(tmp_path / "out")) == Counter(range(300))
    assert {(d["excluded_stage"], d["excluded_reason"]) for d in excluded} == {
        ("ExactDeduplication", "exact duplicate")
    }
    assert all(account.balances and account.read == 100 for account in result.ledger.files.values())


SCORED = [
    # text, score; the survivor of each text is below
    ("ties", 2), ("ties", 2), ("ties", 1),
    ("later is best", 1), ("later is best", 1.5), ("later is best", -3),
    ("nulls lose", None), ("nulls lose", -1e300), ("nulls lose", None),
    ("all null", None), ("all null", None),
    ("large", 2**53), ("large", 2**60), ("large", 2**60),
    ("mixed", 0), ("mixed", 0.25), ("mixed", None),
]  # fmt: skip
BEST = {"ties": 0, "later is best": 4, "nulls lose": 7, "all null": 9, "large": 12, "mixed": 15}


def scored(rows):
    return [{"text": text, "score": score, "n": n} for n, (text, score) in enumerate(rows)]


@pytest.mark.parametrize("blocksize", [60, 250, None])
def test_the_best_by_score_stays_and_the_first_of_equals(tmp_path, blocksize):
    write_jsonl(tmp_path / "in/a.jsonl", scored(SCORED))
    barrier = ExactDeduplication(survivor="best", score_field="score")
    deduplicate(tmp_path / "in", tmp_path / "out", barrier, blocksize=blocksize)
    assert [d["n"] for d in lines_of(tmp_path / "out")] == sorted(BEST.values())
    check_records(tmp_path / "in", tmp_path / "out", [BEST[text] for text, _ in SCORED])


def test_a_document_without_a_score_is_worse_than_any_and_nan_is_no_score(tmp_path):
    nan = float("nan")
    rows = [("a", None), ("a", nan), ("b", nan), ("b", None), ("c", nan), ("c", float("-inf")), ("c", None)]
    texts, scores = zip(*rows, strict=True)
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": texts, "score": pa.array(scores, pa.float64())}), tmp_path / "in/a.parquet")
    barrier = ExactDeduplication(survivor="best", score_field="score")
    execute(ParquetReader(str(tmp_path / "in")), barrier, ParquetWriter(str(tmp_path / "out")))
    found = [(row["id"][-1], row["survivor"][-1]) for row in records_of(tmp_path / "out")]
    assert found == [("1", "0"), ("3", "2"), ("4", "5"), ("6", "5")]


def test_integers_of_any_kind_are_scores(tmp_path):
    (tmp_path / "in").mkdir()
    for n, kind in enumerate((pa.uint64(), pa.int8(), pa.float32())):
        values = [1, 2**64 - 1, 7] if kind == pa.uint64() else [1, 100, 7]
        table = pa.table({"text": [f"text {n}"] * 3, "score": pa.array(values, kind)})
        pq.write_table(table, tmp_path / f"in/{n}.parquet")
    barrier = ExactDeduplication(survivor="best", score_field="score")
    execute(ParquetReader(str(tmp_path / "in")), barrier, ParquetWriter(str(tmp_path / "out")))
    assert {row["survivor"].rpartition("#")[2] for row in records_of(tmp_path / "out")} == {"1"}


def test_a_score_that_is_no_number_is_reported_with_its_column(tmp_path):
    write_jsonl(tmp_path / "in/a.jsonl", [{"text": "a", "score": "high"}, {"text": "a", "score": "low"}])
    with pytest.raises(Exception, match="'score' holds large_string, not numbers"):
        deduplicate(tmp_path / "in", tmp_path / "out", ExactDeduplication(survivor="best", score_field="score"))


def test_of_equal_texts_the_longest_is_the_first(tmp_path):
    write_jsonl(tmp_path / "in/a.jsonl", [{"text": text} for text in ("bb", "a", "a", "bb", "a")])
    deduplicate(tmp_path / "in", tmp_path / "out", ExactDeduplication(survivor="longest"))
    check_records(tmp_path / "in", tmp_path / "out", [0, 1, 1, 0, 1])


@pytest.mark.parametrize("arguments", [{"survivor": "best"}, {"score_field": "n"}, {"survivor": "last"}])
def test_a_policy_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(ValueError, match=r"survivor|score_field"):
        ExactDeduplication(**arguments)


def test_parquet_in_several_row_groups_comes_out_as_parquet_with_its_types(tmp_path):
    (tmp_path / "in").mkdir()
    texts = [f"text {n % 11}" for n in range(60)]
    for name in "ab":
        table = pa.table({"text": texts, "n": pa.array(range(60), pa.int16()), "of": [name] * 60})
        pq.write_table(table, tmp_path / f"in/{name}.parquet", row_group_size=9)
    reader = ParquetReader(str(tmp_path / "in"), blocksize=400)
    result = execute(reader, ExactDeduplication(), ParquetWriter(str(tmp_path / "out")))
    parts = [pq.read_table(path) for path in sorted((tmp_path / "out").glob("part-*.parquet"))]
    rows = [row for part in parts for row in part.to_pylist()]
    assert len(parts) > 4 and rows == [{"text": f"text {n}", "n": n, "of": "a"} for n in range(11)]
    assert {part.schema.field("n").type for part in parts if part.num_rows} == {pa.int16()}
    survivors = {row["id"]: row["survivor"] for row in records_of(tmp_path / "out")}
    a, b = (str(tmp_path / f"in/{name}.parquet") for name in "ab")
    assert survivors == {f"{file}#{n}": f"{a}#{n % 11}" for file in (a, b) for n in range(60) if (file, n) >= (a, 11)}
    assert result.ledger.total().kept == 11


def test_compressed_files_are_streams_whose_batches_find_each_others_duplicates(tmp_path, monkeypatch):
    documents = [{"text": f"{n % 400} " + "x" * 300, "n": n} for n in range(1500)]
    write_jsonl(tmp_path / "in/a.jsonl.gz", documents[:1000])
    write_jsonl(tmp_path / "in/b.jsonl.gz", documents[1000:])
    result = deduplicate(tmp_path / "in", tmp_path / "out", ExactDeduplication(), blocksize="64KB")
    assert len(list((tmp_path / "out").glob("part-*"))) > 4
    assert [d["n"] for d in lines_of(tmp_path / "out")] == list(range(400))
    assert len(records_of(tmp_path / "out")) == 1100 == result.ledger.total().dropped.total()


def test_the_workflow_counts_and_tells_where_things_are(tmp_path):
    write_jsonl(tmp_path / "in/a.jsonl", [{"body": f"{n % 3}"} for n in range(10)])
    found = ExactDeduplicationWorkflow(tmp_path / "in", tmp_path / "out", text_field="body").run(InProcess())
    assert (found.documents, found.duplicates, found.output) == (10, 7, str(tmp_path / "out"))
    assert found.records == str(tmp_path / "out/duplicates") and len(records_of(tmp_path / "out")) == 7
    assert "7 of 10 documents are duplicates, in 3 clusters, the largest of 4" in found.summary()
    assert f"kept documents     {tmp_path}/out\n" in found.summary()
    assert not any(name.startswith("excluded/") for name in written(tmp_path / "out"))


def test_identification_leaves_the_documents_where_they_are_and_a_second_run_finds_it_done(tmp_path):
    write_jsonl(tmp_path / "in/a.jsonl", [{"text": f"{n % 3}"} for n in range(10)])
    workflow = ExactDeduplicationWorkflow(tmp_path / "in", tmp_path / "out", perform_removal=False)
    for _ in range(2):
        found = workflow.run(InProcess())
        assert (found.documents, found.duplicates, found.output) == (10, 7, None)
        assert [name for name in written(tmp_path / "out") if not name.startswith("duplicates/")] == []
        assert len(records_of(tmp_path / "out")) == 7
        assert "kept documents" not in found.summary() and f"{tmp_path}/out/duplicates" in found.summary()
    assert found.run.ledger.resumed == 1


def test_a_memory_limit_below_the_minimum_is_reported_before_the_start(tmp_path, capsys):
    write_jsonl(tmp_path / "in/a.jsonl", [{"text": f"{n % 3}"} for n in range(10)])
    deduplicate(tmp_path / "in", tmp_path / "out", ExactDeduplication(memory_limit="50MB"))
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "above memory_limit" in line]
    assert "raise it" in warning and "blocksize" in warning
    deduplicate(tmp_path / "in", tmp_path / "out2", ExactDeduplication(memory_limit="50GB"))
    assert "above memory_limit" not in capsys.readouterr().err


def test_records_do_not_need_a_writer_of_the_same_kind(tmp_path):
    write_jsonl(
        tmp_path / "in/a.jsonl", [{"text": "a", "x": {"y": 1}}, {"text": "a", "x": 3}, {"text": "b", "x": None}]
    )
    execute(JsonlReader(str(tmp_path / "in")), ExactDeduplication(), ParquetWriter(str(tmp_path / "out")))
    rows = [r for p in sorted((tmp_path / "out").glob("part-*.parquet")) for r in pq.read_table(p).to_pylist()]
    assert [row["text"] for row in rows] == ["a", "b"] and json.loads(rows[0]["x"]) == {"y": 1}
    excluded = pq.read_table(next((tmp_path / "out/excluded").glob("*.parquet"))).to_pylist()
    assert [row["excluded_reason"] for row in excluded] == ["exact duplicate"]


def test_dropped_documents_are_not_written_if_they_are_not_wanted(tmp_path):
    write_jsonl(tmp_path / "in/a.jsonl", [{"text": "a"}, {"text": "a"}])
    execute(JsonlReader(str(tmp_path / "in")), ExactDeduplication(), JsonlWriter(str(tmp_path / "out"), excluded=False))
    assert sorted(written(tmp_path / "out")) == ["duplicates/part-000000.parquet", "part-000000.jsonl"]


@pytest.mark.parametrize("barrier", [ExactDeduplication("body"), FuzzyDeduplication("body")])
def test_documents_without_the_text_are_no_duplicates_of_each_other(tmp_path, barrier):
    documents = [{"text": f"{n}", **({"body": "the same text in all of them"} if n % 2 else {})} for n in range(10)]
    write_jsonl(tmp_path / "in" / "a.jsonl", documents)
    execute(JsonlReader(str(tmp_path / "in")), barrier, JsonlWriter(str(tmp_path / "out")))
    left = [json.loads(line)["text"] for file in sorted((tmp_path / "out").glob("*.jsonl")) for line in file.open()]
    assert left == ["0", "1", "2", "4", "6", "8"]


@pytest.mark.parametrize("spooled", [False, True])
@pytest.mark.parametrize(
    ("barrier", "field"),
    [
        (ExactDeduplication("content"), "content"),
        (FuzzyDeduplication("content"), "content"),
        (LineDeduplication("content"), "content"),
        (ExactDeduplication(survivor="best", score_field="rank"), "rank"),
    ],
)
def test_a_field_that_no_document_has_fails_before_anything_is_removed(tmp_path, barrier, field, spooled):
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": f"{n % 3} words"} for n in range(10)])
    write_jsonl(tmp_path / "in" / "b.jsonl", [{"text": "other words"}])
    front = [ScoreFilter(WordCountFilter(min_words=1))] if spooled else []
    stages = [JsonlReader(str(tmp_path / "in")), *front, barrier, JsonlWriter(str(tmp_path / "out"))]
    for _ in range(2):  # nor does the next run go on
        with pytest.raises(PipelineError, match=f"no document has anything in the field '{field}'"):
            execute(*stages)
        assert written(tmp_path / "out") == {}


def test_no_documents_at_all_are_no_error(tmp_path):
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": "few words"}])
    stages = [ScoreFilter(WordCountFilter(min_words=5)), LineDeduplication()]
    execute(JsonlReader(str(tmp_path / "in")), *stages, JsonlWriter(str(tmp_path / "out")), allow_empty=True)
    assert lines_of(tmp_path / "out") == []


def test_keys_that_a_failed_attempt_left_uncommitted_do_not_count(tmp_path, monkeypatch):
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": f"{n % 7}"} for n in range(20)])
    process = Spool.process

    def leaves_more(self, task):
        written = process(self, task)
        keys = self.folder.read("part-000000.keys")
        self.folder.write("part-000000-00000000-00000020.keys", keys)  # sorts before the other
        return written

    monkeypatch.setattr(Spool, "process", leaves_more)
    execute(JsonlReader(str(tmp_path / "in")), ExactDeduplication(), JsonlWriter(str(tmp_path / "out")))
    assert len(lines_of(tmp_path / "out")) == 7


def test_a_batch_that_was_not_there_when_duplicates_were_looked_for_is_an_error(tmp_path):
    folder = Folder(str(tmp_path))
    folder.write("removed.json", b'{"part-000000": [3, 0]}')
    stage = RemoveDuplicates("dedup", "duplicate", folder, folder)
    stage.setup()
    three = DocumentBatch(pa.table({"text": ["a", "b", "c"]}), task_id="0")
    assert stage.process(three).num_items == 3
    for other in (DocumentBatch(pa.table({"text": ["a"]}), task_id="0"), DocumentBatch(three.data, task_id="0[1:3]")):
        with pytest.raises(ValueError, match="was not there when duplicates were looked for"):
            stage.process(other)


def test_files_whose_other_columns_differ_in_type_are_cut_alike_both_times(tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": ["a", "b", "a"], "x": [1, 2, 3]}), tmp_path / "in" / "0.parquet")
    pq.write_table(pa.table({"text": ["b", "c", "d"], "x": ["one", "two", "three"]}), tmp_path / "in" / "1.parquet")
    reader = ParquetReader(str(tmp_path / "in"), files_per_partition=2)
    execute(reader, ExactDeduplication(), JsonlWriter(str(tmp_path / "out")))
    assert [row["text"] for row in lines_of(tmp_path / "out")] == ["a", "b", "c", "d"]


def test_a_folder_of_both_formats_is_not_guessed_at(tmp_path):
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"text": "a"}])
    pq.write_table(pa.table({"text": ["b"]}), tmp_path / "in" / "b.parquet")
    with pytest.raises(PlanError, match="1 JSONL and 1 Parquet"):
        ExactDeduplicationWorkflow(str(tmp_path / "in"), str(tmp_path / "out")).run()


def test_pandas_is_not_imported_where_there_is_one(tmp_path):
    """It takes longer to import than all else together."""
    (tmp_path / "pandas").mkdir()
    note = f"open({str(tmp_path / 'imported')!r}, 'a').write('x')\nraise ImportError\n"
    (tmp_path / "pandas" / "__init__.py").write_text(note)
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": "a"}\n{"text": "b"}\n')
    code = (
        "from gristmill.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow as Exact\n"
        "from gristmill.stages.deduplication.fuzzy.workflow import FuzzyDeduplicationWorkflow as Fuzzy\n"
        "print([W('in.jsonl', W.__name__).run().duplicates for W in (Exact, Fuzzy)])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert "[1, 1]" in done.stdout, done.stderr
    assert not (tmp_path / "imported").exists()


def test_explain_names_the_survivor_of_a_survivor_that_a_later_barrier_removed(tmp_path):
    text = "one text of a few words that is long enough for shingles of twenty-four characters"
    bodies = [text + " and some more of it, so that this one is the longest", text, text]
    write_jsonl(tmp_path / "in/a.jsonl", [{"id": f"d{n}", "text": body} for n, body in enumerate(bodies)])
    stages = [
        JsonlReader(str(tmp_path / "in")),
        ExactDeduplication(),
        FuzzyDeduplication(survivor="longest", num_bands=50, minhashes_per_band=2),
        JsonlWriter(str(tmp_path / "out")),
    ]
    execute(*stages)
    ids = list(places(tmp_path / "in"))
    first, second = explain(stages, "d2").stages
    assert first.verdict == f"dropped: duplicate of {ids[1]}"
    assert second.verdict == "not compared: it was dropped before"
    assert f"{ids[1]} was removed by 'FuzzyDeduplication' in turn, for {ids[0]}" in first.notes
    assert not [note for report in explain(stages, "d1").stages for note in report.notes if "in turn" in note]


@pytest.mark.parametrize("wrong", [{"text_field": None}, {"perform_removal": "no"}, {"input_filetype": "csv"}])
def test_arguments_of_a_workflow_that_make_no_sense_are_refused_by_name(tmp_path, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ExactDeduplicationWorkflow(tmp_path, tmp_path / "out", **wrong)
