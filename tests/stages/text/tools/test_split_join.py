from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import Pipeline
from gristmill.errors import PlanError
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.stages.text.io.raw_lines import without_members
from gristmill.stages.text.tools import AddId, DocumentJoiner, DocumentSplitter
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID, RAW


def batch(texts: list[str | None], **more) -> DocumentBatch:
    rows = range(len(texts))
    columns = {
        ID: [f"c.jsonl#{n}" for n in rows],
        "id": [f"d{n}" for n in rows],
        "text": pa.array(texts, pa.large_string()),
        "n": list(rows),
        RAW: [b"{%d}" % n for n in rows],
        **more,
    }
    return DocumentBatch(data=pa.table(columns))


def columns(task: DocumentBatch, *names: str) -> list[tuple]:
    return list(zip(*(task.data[name].to_pylist() for name in names), strict=True))


def test_segments_have_all_fields_of_their_document_and_an_identity_of_their_own():
    task = DocumentSplitter("\n\n").process(batch(["a\n\nb\n\n", "c", None, ""]))
    assert columns(task, ID, "text", "segment_id", "n", RAW) == [
        ("c.jsonl#0/0", "a", 0, 0, b"{0}"),
        ("c.jsonl#0/1", "b", 1, 0, b"{0}"),
        ("c.jsonl#0/2", "", 2, 0, b"{0}"),
        ("c.jsonl#1", "c", 0, 1, b"{1}"),
        ("c.jsonl#2", None, 0, 2, b"{2}"),
        ("c.jsonl#3", "", 0, 3, b"{3}"),
    ]
    assert task.account.made == 2


def test_identities_stay_unique_when_segments_are_split_again():
    task = DocumentSplitter("|").process(batch(["a b|c d", "e|f"]))
    task = DocumentSplitter(" ", segment_id_field="word").process(task)
    ids = [one for (one,) in columns(task, ID)]
    assert ids == ["c.jsonl#0/0/0", "c.jsonl#0/0/1", "c.jsonl#0/1/0", "c.jsonl#0/1/1", "c.jsonl#1/0", "c.jsonl#1/1"]


def test_the_separator_is_no_pattern():
    task = DocumentSplitter(".").process(batch(["a.b"]))
    assert columns(task, "text") == [("a",), ("b",)]


def test_joined_documents_are_those_of_the_first_segment():
    task = DocumentSplitter("-").process(batch(["a-b-c", "d"]))
    task.take_account()
    task.data = task.data.take([3, 2, 0, 1])
    task = DocumentJoiner("+").process(task)
    assert task.columns == ["id", "text", "n"]
    assert columns(task, ID, "text", "n", RAW) == [("c.jsonl#1", "d", 1, b"{1}"), ("c.jsonl#0/0", "a+b+c", 0, b"{0}")]
    assert task.account.merged == 2


def test_segments_that_were_dropped_are_not_missed():
    task = DocumentSplitter("-").process(batch(["a-b-c"]))
    task = DocumentJoiner("-", drop_segment_id_field=False).process(task.keep([False, True, True], "short"))
    assert columns(task, ID, "text", "segment_id") == [("c.jsonl#0/1", "b-c", 1)]
    account = task.account
    assert (account.made, len(account.dropped[0].rows), account.merged) == (2, 1, 1)  # 1 + 2 = 1 + 1 + 1


def test_documents_without_an_id_are_joined_with_none():
    task = batch(["a", "b", "c"], segment_id=[0, 0, 1])
    task.data = task.data.set_column(1, "id", pa.array([None, None, "x"]))
    assert columns(DocumentJoiner().process(task), "text") == [("a",), ("b",), ("c",)]


def test_joined_documents_are_no_longer_than_allowed():
    task = DocumentSplitter("--").process(batch(["aa--bb--cccccccccc--d--e", "f"]))
    lengths = [len(text) for (text,) in columns(task, "text")]
    task.data = task.data.append_column("length", pa.array(lengths))
    joiner = DocumentJoiner("--", drop_segment_id_field=False, max_length=6, length_field="length")
    task = joiner.process(task)
    assert columns(task, "text", "segment_id", "length") == [
        ("aa--bb", 0, 6),
        ("cccccccccc", 1, 10),
        ("d--e", 2, 4),
        ("f", 0, 1),
    ]
    assert task.account.merged == 2
    assert len({one for (one,) in columns(task, ID)}) == 4


def test_wrong_arguments_are_errors():
    with pytest.raises(ValueError, match="separator is empty"):
        DocumentSplitter("")
    with pytest.raises(ValueError, match="both max_length and length_field"):
        DocumentJoiner(max_length=3)
    with pytest.raises(ValueError, match="cannot both be"):
        DocumentSplitter("a", segment_id_field="text")


@settings(deadline=None, max_examples=60)
@given(st.lists(st.none() | st.text("ab-é", max_size=8), max_size=6), st.sampled_from(["-", "ab", "--"]))
def test_what_is_split_and_joined_is_as_before_and_the_ledger_balances(texts, separator):
    before = batch(texts)
    split = DocumentSplitter(separator).process(batch(texts))
    ids = [one for (one,) in columns(split, ID)]
    assert len(set(ids)) == len(ids)
    assert len(texts) + split.account.made == split.num_items
    joined = DocumentJoiner(separator).process(split)
    account = joined.account
    assert len(texts) + account.made == joined.num_items + account.merged
    assert joined.data.drop([ID]).to_pydict() == before.data.drop([ID]).to_pydict()


def test_a_pipeline_splits_and_joins_on_workers():
    tasks = [batch([f"{n} a\n\nb\n\nc {m}" for m in range(20)]) for n in range(3)]
    pipeline = Pipeline("split and join")
    for stage in (AddId("key"), DocumentSplitter("\n\n"), DocumentJoiner(document_id_field="key")):
        pipeline.add_stage(stage)
    result = pipeline.run(initial_tasks=tasks)
    texts = sorted(text for task in result for (text,) in columns(task, "text"))
    assert texts == sorted(f"{n} a\n\nb\n\nc {m}" for n in range(3) for m in range(20))


LINES = b'{"id": 1, "segment_id" : 0, "text": "a"}\n{"segment_id":1,"x": {"segment_id": 5},"id": 1, "text": "b"}\n'


@pytest.mark.parametrize(
    ("data", "more", "written"),
    [
        (LINES, {}, b'{"id": 1, "text": "a-b"}\n'),
        (LINES, {"drop_segment_id_field": False}, b'{"id": 1, "segment_id" : 0, "text": "a-b"}\n'),
        (
            b'{ "segment_id": 3 , "x": {"segment_id": 5}, "text": "b", "id": 1, "segment_id": 4 }\n',
            {},
            b'{ "x": {"segment_id": 5}, "text": "b", "id": 1 }\n',
        ),
    ],
)
def test_a_dropped_segment_id_is_not_in_the_line_either(tmp_path, data, more, written):
    (tmp_path / "a.jsonl").write_bytes(data)
    reader, joiner = JsonlReader(str(tmp_path / "a.jsonl")), DocumentJoiner("-", **more)
    for n, writer in enumerate((JsonlWriter(tmp_path / "out"), JsonlWriter(tmp_path / "two", fields=["segment_id"]))):
        [block] = reader.source()
        task = joiner.process(reader.linked([], [joiner, writer]).process(block))
        [path] = writer.linked([reader, joiner], []).process(task).data
        kept = b'{"segment_id":0}\n' if more else b"{}\n"
        assert Path(path).read_bytes() == (kept if n else written)


def test_a_line_may_consist_of_what_is_removed():
    assert without_members(b'{"a": 1, "\\u0061": 2 } ', {"a"}) == b"{ } "
    assert without_members(b"{ }", {"a"}) == b"{ }"
    assert without_members(b'{"a": 1, "b" : 2,"a": 3,\t"c":4}', {"a"}) == b'{"b" : 2,\t"c":4}'


def test_a_removed_column_is_known_to_be_missing_before_the_run():
    pipeline = Pipeline("join twice").add_stage(DocumentJoiner()).add_stage(DocumentJoiner())
    with pytest.raises(PlanError, match="segment_id"):
        pipeline.run(initial_tasks=[batch(["a"], segment_id=[0])])
