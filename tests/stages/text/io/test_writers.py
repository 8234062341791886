"""The output of writers for documents that come from elsewhere or that stages have changed."""

from __future__ import annotations

import datetime
import io
import json
import os
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter
from gristmill.stages.text.modifiers.modify import Modify
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID, RAW


def raw_table(lines: list[bytes | None], **columns) -> pa.Table:
    return pa.table({**columns, RAW: pa.array(lines, type=pa.large_binary())})


@pytest.mark.parametrize(
    ("line", "columns", "written"),
    [
        (b'{"text": "a"}', {"text": "a"}, b'{"text": "a"}'),
        (b'{"text": "a", "n": 1.0}', {"n": 1}, b'{"text": "a", "n": 1.0}'),
        (b'{"n": 1e2}', {"n": 100.0}, b'{"n": 1e2}'),
        (b'{"n": 1}', {"n": True}, b'{"n": true}'),
        (b'{"n": 1}', {"n": 2}, b'{"n": 2}'),
        (b'{"a": 1, "n" : [1, 2] }', {"n": [1, 2]}, b'{"a": 1, "n" : [1, 2] }'),
        (b'{"a": 1, "n" : [1, 2] }', {"n": [1, 3]}, b'{"a": 1, "n" : [1,3] }'),
        (b'{"n": 1, "n": 2}', {"n": 3}, b'{"n": 1, "n": 3}'),
        (b"{}", {"n": 1, "m": "x"}, b'{"n":1,"m":"x"}'),
        (b" { } ", {"n": 1}, b' { "n":1} '),
        (b'{"a": 1 }\t', {"n": 0.5}, b'{"a": 1 ,"n":0.5}\t'),
        (b'{"a": 1}', {"n": None}, b'{"a": 1}'),
        (b'{"a": null}', {"a": None}, b'{"a": null}'),
        (b'{"a": 5}', {"a": None}, b'{"a": null}'),
        (b'{"a": 5}', {"a": float("nan")}, b'{"a": null}'),
        (b'{"b": 1, "a": 2}', {"a": 3, "b": 4, "c": 5}, b'{"b": 4, "a": 3,"c":5}'),
        (b'{"a": {"x":  1}}', {"a": '{"x":  1}'}, b'{"a": {"x":  1}}'),
        (b'{"a": {"x":  1}}', {"a": '{"x": 2}'}, b'{"a": {"x": 2}}'),
        (b'{"a": {"x":  1}}', {"a": "[1]"}, b'{"a": "[1]"}'),
        (b'{"a": {"x":  1}}', {"a": "{x"}, b'{"a": "{x"}'),
        (b'{"a": [1,  2]}', {"a": "[1,  2]"}, b'{"a": [1,  2]}'),
        (b'{"a": [1,  2]}', {"a": "[3]"}, b'{"a": [3]}'),
        (b'{"a": [1,  2]}', {"a": "3"}, b'{"a": "3"}'),
        (b'{"year": 2020}', {"year": "2020"}, b'{"year": "2020"}'),
        (b'{"flag": true}', {"flag": "true"}, b'{"flag": "true"}'),
        (b'{"t": "x"}', {"t": '"x"'}, b'{"t": "\\"x\\""}'),
        (b'{"when": "2020-01-01"}', {"when": datetime.date(2020, 1, 1)}, b'{"when": "2020-01-01"}'),
        (b'{"n": 123456789012345678901234567890}', {"x": "y"}, b'{"n": 123456789012345678901234567890,"x":"y"}'),
        (b'{"text": "a"}', {'q"': "\u2028\x01\n"}, b'{"text": "a","q\\"":"\xe2\x80\xa8\\u0001\\n"}'),
        (None, {"text": "made", "n": 1}, b'{"text":"made","n":1}'),
    ],
)
def test_changes_are_spliced_into_the_line(tmp_path, line, columns, written):
    table = raw_table([line], **{name: [value] for name, value in columns.items()})
    assert JsonlWriter(tmp_path).render(table) == written + b"\n"


MIXED = [b'{"text": "a", "v": "x"}', b'{"text": "b", "v":  5}', b'{"text": "c", "v": {"k":  1}}', b'{"text": "d"}']


@pytest.mark.parametrize("kept", [[0], [1], [2], [3], [0, 1], [0, 3], [0, 1, 2, 3]])
def test_json_text_that_went_through_pandas_comes_back_as_it_stood(work, kept):
    class Some(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task):
            frame = task.to_pandas()
            assert frame.v.tolist()[:3] == ["x", 5, {"k": 1}]
            return DocumentBatch(data=frame.iloc[kept].reset_index(drop=True), task_id=task.task_id)

    reader = JsonlReader(work.put("a.jsonl", b"\n".join(MIXED)))
    out = work.through(reader, Some(), JsonlWriter(work.folder / "out"))
    assert out == b"".join(MIXED[row] + b"\n" for row in kept)


def test_json_text_is_set_by_other_json_text_where_a_stage_replaced_the_column(tmp_path):
    table = raw_table(MIXED, v=['"y"', "6", "plain", '{"k":2}'])
    assert JsonlWriter(tmp_path).render(table).split(b"\n")[:4] == [
        b'{"text": "a", "v": "y"}',
        b'{"text": "b", "v":  6}',
        b'{"text": "c", "v": "plain"}',
        b'{"text": "d","v":{"k":2}}',
    ]


def test_json_text_is_still_json_after_modifying_and_filtering(work):
    class First(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task):
            return task.keep([True, False, False, False])

    reader = JsonlReader(work.put("a.jsonl", b"\n".join([*MIXED[1::-1], *MIXED[2:]])))
    modify = Modify(lambda text: text.replace("x", "y"), "v")
    out = work.through(reader, modify, First(), JsonlWriter(work.folder / "out"))
    assert out == MIXED[1] + b"\n"
    reader = JsonlReader(work.put("b.jsonl", MIXED[2]))
    modify = Modify(lambda text: "2020", "v")
    assert work.through(reader, modify, JsonlWriter(work.folder / "b")) == b'{"text": "c", "v": "2020"}\n'


def test_rows_change_each_for_itself(tmp_path):
    lines = [b'{"text": "%d", "n": %d}' % (i, i) for i in range(100)]
    table = raw_table(lines, text=[str(i) for i in range(100)], n=[i if i % 3 else -i for i in range(100)])
    expected = [b'{"text": "%d", "n": %d}\n' % (i, i if i % 3 else -i) for i in range(100)]
    assert JsonlWriter(tmp_path).render(table) == b"".join(expected)


def test_a_reader_takes_the_columns_that_our_own_stages_need(work):
    reader = JsonlReader(work.put("a.jsonl", b'{"text": "a", "x": 1}\n'))
    filters = ScoreFilter(WordCountFilter(1))
    assert reader.linked([], [filters, JsonlWriter("x")]).wanted.columns == ["text"]
    assert reader.linked([], [filters, ParquetWriter("x")]).wanted.columns is None
    assert reader.linked([], [filters]).wanted.columns is None


def test_a_stage_that_makes_all_fields_leaves_nothing_else_in_the_line(work):
    class Drops(ProcessingStage[DocumentBatch, DocumentBatch]):
        only_outputs = True

        def outputs(self):
            return ["data"], ["text"]

        def process(self, task):
            task.data = task.data.select(["text", ID, RAW])
            return task

    path = work.put("a.jsonl", b'{"x": 1, "text": "a"}\n')
    assert work.through(JsonlReader(path), Drops(), JsonlWriter(work.folder / "out")) == b'{"text":"a"}\n'


@pytest.mark.parametrize("change", ["nothing", "a column more", "fields", "removed", "made"])
def test_documents_are_written_alike_whether_rows_were_taken_out_before_or_are_only_passed_over(work, change):
    lines = b"".join(b'{"text": "%d", "x": %d}\n' % (i, i) for i in range(20))
    writer = JsonlWriter(work.folder / "out", fields=["x"] if change == "fields" else None)
    reader = JsonlReader(work.put("a.jsonl", lines))
    writer = writer.linked([reader], [])
    if change == "removed":
        writer.removed = frozenset(["x"])
    (block,) = reader.source()
    batch = reader.linked([], [writer]).process(block)
    if change == "a column more":
        batch.data = batch.data.append_column("n", pa.array(range(20)))
    if change == "made":
        where = batch.data.column_names.index(RAW)
        batch.data = batch.data.set_column(where, RAW, pa.nulls(20, pa.large_binary()))
    mask = [i % 2 > 0 for i in range(20)]
    seen = batch.keep(mask)
    assert seen.data.num_rows == 10
    passed = batch.keep(mask)
    assert passed.selection()[1] is not None
    out = [bytes(writer._of_batch(one)) for one in (seen, passed)]
    assert out[0] == out[1] and out[0].count(b"\n") == 10
    if change == "nothing":
        assert out[0] == b"".join(b'{"text": "%d", "x": %d}\n' % (i, i) for i in range(1, 20, 2))


def test_documents_from_columns_alone(tmp_path):
    table = pa.table(
        {
            "text": ["a", None],
            "x": [float("nan"), 1.5],
            "when": [datetime.datetime(2020, 1, 2, 3, 4, 5), None],
            "zone": pa.array([0, None], type=pa.timestamp("ns", tz="UTC")),
            "day": [datetime.date(2020, 1, 2), None],
            "price": [Decimal("1.50"), None],
            "list": [[1, 2], None],
            "map": [{"a": 1}, None],
            ID: ["f#0", "f#1"],
        }
    )
    first, second = JsonlWriter(tmp_path).render(table).splitlines()
    assert json.loads(first) == {
        "text": "a",
        "x": None,
        "when": "2020-01-02T03:04:05.000000",
        "zone": "1970-01-01T00:00:00.000000000Z",
        "day": "2020-01-02",
        "price": "1.50",
        "list": [1, 2],
        "map": {"a": 1},
    }
    assert json.loads(second) == {**dict.fromkeys(table.column_names[:-1]), "x": 1.5}


def test_notes_on_excluded_documents_are_written_whatever_the_fields(tmp_path):
    table = raw_table([b'{"x": 1, "text": "a"}'], text=["a"], reason=["short"])
    assert JsonlWriter(tmp_path, fields=["text"]).render(table, ["reason"]) == b'{"text":"a","reason":"short"}\n'
    out = ParquetWriter(tmp_path, fields=["text"]).render(table, ["reason"])
    assert pq.read_table(io.BytesIO(out)).to_pylist() == [{"text": "a", "reason": "short"}]


def test_binary_columns_cannot_be_json(tmp_path):
    with pytest.raises(TypeError, match="column 'blob' holds binary data"):
        JsonlWriter(tmp_path).render(pa.table({"blob": [b"x"]}))


def test_one_file_for_each_task_even_without_rows(tmp_path):
    for writer, ends in ((JsonlWriter(tmp_path / "j"), ".jsonl"), (ParquetWriter(tmp_path / "p"), ".parquet")):
        for ident, rows in (("0", ["a", "b"]), ("1", [])):
            batch = DocumentBatch(data=pa.table({"text": pa.array(rows, type=pa.large_string())}), task_id=ident)
            task = writer.process(batch)
            [written] = task.account.written
            assert (written.name, written.rows) == (f"part-00000{ident}{ends}", len(rows))
            assert task.data == [f"{writer.path}/{written.name}"]
            assert os.path.getsize(task.data[0]) == written.size
        assert sorted(os.listdir(writer.path)) == [f"part-000000{ends}", f"part-000001{ends}"]


def test_settings_that_make_no_sense(tmp_path):
    with pytest.raises(ValueError, match="compression"):
        JsonlWriter(tmp_path, compression="rar")
    with pytest.raises(ValueError, match="excluded"):
        ParquetWriter(tmp_path, excluded=1.5)
    with pytest.raises(ValueError, match="write_kwargs"):
        JsonlWriter(tmp_path, write_kwargs={"level": 3})


def test_parquet_keeps_types_both_ways(work):
    table = pa.table(
        {
            "text": pa.array(["a", "b", "c"], type=pa.large_string()),
            "n": pa.array([1, None, 3], type=pa.int16()),
            "when": pa.array([1, 2, None], type=pa.timestamp("us")),
            "tags": [["x"], [], None],
            "blob": [b"1", None, b"\xff"],
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    reader = ParquetReader(work.put("a.parquet", sink.getvalue()))
    out = work.through(reader, ParquetWriter(work.folder / "out", compression="zstd"))
    assert pq.read_table(io.BytesIO(out)).equals(table)
    out = work.through(reader, ParquetWriter(work.folder / "out2", fields=["n", "text", "missing"]))
    missing = pa.nulls(3, pa.large_string())
    assert pq.read_table(io.BytesIO(out)).equals(table.select(["n", "text"]).append_column("missing", missing))


def parquet(work, name, rows, group, start=0):
    sink = io.BytesIO()
    table = pa.table(
        {"text": [f"{i} " + "x" * 1000 for i in range(start, start + rows)], "n": range(start, start + rows)}
    )
    pq.write_table(table, sink, row_group_size=group, use_dictionary=False, compression="none")
    return work.put(name, sink.getvalue())


def test_parquet_is_cut_by_row_groups_and_inside_large_ones(work):
    parquet(work, "a.parquet", 1000, 100)
    parquet(work, "b.parquet", 300, 300, start=1000)
    parquet(work, "c.parquet", 5, 5, start=1300)
    for blocksize, blocks in ((100_000, None), (250_000, None), ("100MB", 1), (None, 3)):
        reader = ParquetReader(str(work.source), blocksize=blocksize)
        batches = work.batches(reader)
        assert [n for batch in batches for n in batch.data["n"].to_pylist()] == list(range(1305))
        if blocks:
            assert len(batches) == blocks
        elif blocksize == 100_000:
            assert max(batch.data.nbytes for batch in batches) < 320_000
            assert len(batches) >= 13
        ids = [ident.rpartition("/")[2] for batch in batches for ident in batch.data[ID].to_pylist()]
        assert ids == [f"a.parquet#{i}" for i in range(1000)] + [f"b.parquet#{i}" for i in range(300)] + [
            f"c.parquet#{i}" for i in range(5)
        ]


def test_parquet_takes_the_columns_that_are_needed(work):
    class Uses(ProcessingStage[DocumentBatch, DocumentBatch]):
        def inputs(self):
            return ["data"], ["text", "absent"]

        def outputs(self):
            return ["data"], []

        def process(self, task):
            return task

    reader = ParquetReader(parquet(work, "a.parquet", 3, 3))
    [batch] = work.batches(reader, Uses(), ParquetWriter("x", fields=["text"]))
    assert batch.columns == ["text", "n", "absent"]
    [batch] = work.batches(reader, Uses(), JsonlWriter("x"))
    assert batch.columns == ["text", "n", "absent"]
    uses = Uses()
    uses.only_inputs = True
    [batch] = work.batches(reader, uses, ParquetWriter("x", fields=["text"]))
    assert batch.columns == ["text", "absent"]


def test_jsonl_to_parquet_and_back(work):
    lines = b'{"text":"a","n":1,"tags":["x"],"meta":{"k":1}}\n{"text":"b","n":2,"tags":[],"meta":{"k":[2]}}\n'
    work.through(JsonlReader(work.put("a.jsonl", lines)), ParquetWriter(work.folder / "out"))
    reader = ParquetReader(str(work.folder / "out"))
    assert work.through(reader, JsonlWriter(work.folder / "back")) == lines


def test_notes_of_the_reader_are_not_in_parquet_files(work):
    lines = b'{"text": "a", "n": 1, "meta": {"k": 1}, "mixed": [1]}\n{"text": "b", "mixed": 1}\n'
    out = work.through(JsonlReader(work.put("a.jsonl", lines)), ParquetWriter(work.folder / "out"))
    notes = {field.name: field.metadata for field in pq.read_schema(io.BytesIO(out))}
    assert notes == {"text": None, "n": None, "meta": None, "mixed": {b"gristmill": b"json"}}


def test_a_schema_makes_the_parts_of_parquet_agree(work):
    work.put("a.jsonl", b'{"text": "a", "n": 1, "s": 5}\n')
    work.put("b.jsonl", b'{"text": "b", "n": 1.5, "s": "x"}\n')
    work.put("c.jsonl", b'{"text": "c"}\n')
    work.put("d.jsonl", b"")
    schema = {"n": "double", "s": "large_string"}
    work.through(JsonlReader(str(work.source)), ParquetWriter(work.folder / "out", schema=schema))
    paths = sorted((work.folder / "out").iterdir())
    assert len(paths) == 4
    for path in paths:
        types = {field.name: str(field.type) for field in pq.read_schema(path)}
        assert (types["n"], types["s"]) == ("double", "large_string")
    rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
    assert [(row["n"], row["s"]) for row in rows] == [(1.0, "5"), (1.5, "x"), (None, None)]


def test_what_does_not_fit_the_schema_names_the_column_and_the_part(tmp_path):
    writer = ParquetWriter(tmp_path, schema={"n": "int64"})
    batch = DocumentBatch(data=pa.table({"text": ["a"], "n": [1.5]}), task_id="7")
    with pytest.raises(ValueError, match=r"part-000007\.parquet: column 'n' is double.*int64"):
        writer.process(batch)
    dropped = writer.render(batch.data.append_column("why", pa.array(["x"])), ("why",))
    assert pq.read_table(io.BytesIO(dropped))["n"].to_pylist() == [1.5]
    with pytest.raises(ValueError, match="no type of Arrow"):
        ParquetWriter(tmp_path, schema={"n": "whole"})
    with pytest.raises(ValueError, match="which fields does not"):
        ParquetWriter(tmp_path, fields=["text"], schema={"n": "int64"})
