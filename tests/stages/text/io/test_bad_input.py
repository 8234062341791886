"""Each kind of bad input costs exactly the bad record, or the unreadable rest of a file."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.errors import InputChanged, PlanError
from gristmill.stages.text.io import JsonlReader, ParquetReader
from gristmill.stages.text.io.compression import CHUNK_BYTES, decompressed
from gristmill.stages.text.io.reader.records import Records, Wanted
from gristmill.tasks.document import ID, RAW

GOOD = b'{"text": "one"}'
LAST = b'{"text": "two"}'
SMALL_BZ2 = functools.partial(bz2.compress, compresslevel=1)
"""In blocks of 100 kB: what is before the damaged one can be read."""


def texts(batches):
    return [text for batch in batches for text in batch.data.column("text").to_pylist()]


def bad(batches):
    return [record for batch in batches for record in batch.account.bad]


def read(batches):
    return sum(sum(batch.account.read.values()) for batch in batches)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "cut', "not valid JSON"),
        (b"{'text': 'python'}", "not valid JSON"),
        (b'{"text": "a"} {"text": "b"}', "not valid JSON"),
        (b'{"text": NaN}', "not valid JSON"),
        (b'{"text": "\\ud800"}', "not valid JSON"),
        (b'{"text": "a\x00b"}', "not valid JSON"),
        (b"hello", "not valid JSON"),
        (b'{"text": "\xff"}', "not valid UTF-8: byte 0xff at 10"),
        (b'{"other\xc3": 1, "text": "a"}', "not valid UTF-8"),
        (b'["text"]', "not a JSON object but a list"),
        (b'"text"', "not a JSON object but a string"),
        (b"null", "not a JSON object but null"),
        (b"12", "not a JSON object but a number"),
        (b'{"txt": "a"}', "no field 'text'"),
        (b"{}", "no field 'text'"),
        (b'{"text": null}', "the field 'text' is null"),
        (b'{"text": 12}', "the field 'text' is a number, not a string"),
        (b'{"text": ["a"]}', "the field 'text' is a list, not a string"),
        (b'{"text": "a", "text": 1}', "the field 'text' is a number"),
        (b'{"a": {"text": "inner"}}', "no field 'text'"),
    ],
)
def test_a_bad_line_costs_itself(work, line, reason):
    batches = work.read(GOOD + b"\n" + line + b"\n" + LAST + b"\n")
    assert texts(batches) == ["one", "two"]
    [record] = bad(batches)
    assert record.file.endswith("in/a.jsonl")
    assert record.position == len(GOOD) + 1
    assert reason in record.reason
    assert record.raw == line
    assert read(batches) == 3


@pytest.mark.parametrize(
    ("data", "expected", "offsets"),
    [
        (b"", [], []),
        (b"\n\n  \n\t\r\n", [], []),
        (GOOD, ["one"], [0]),
        (b"\xef\xbb\xbf" + GOOD + b"\n" + LAST, ["one", "two"], [0, 19]),
        (GOOD + b"\r\n" + LAST + b"\r\n", ["one", "two"], [0, 17]),
        (b"\n" + GOOD + b"\n\n   \n" + LAST, ["one", "two"], [1, 22]),
        (b'{"text":"a","text":"b"}\n', ["b"], [0]),
        (b'{"text": "", "x": null}\n', [""], [0]),
        (b'{"t\\u0065xt": "hidden"}\n', ["hidden"], [0]),
        (rb'{"text": "\u00fc\ud83d\ude00\\\"\n\/"}', ['ü😀\\"\n/'], [0]),
    ],
)
def test_odd_input_that_is_not_bad(work, data, expected, offsets):
    batches = work.read(data)
    assert texts(batches) == expected
    assert bad(batches) == []
    assert read(batches) == len(expected)
    ids = [ident for batch in batches for ident in batch.data.column("_gristmill_id").to_pylist()]
    assert [int(ident.rpartition("#")[2]) for ident in ids] == offsets


def test_a_huge_document_simply_works(work):
    text = "word " * 20_000_000
    batches = work.read(GOOD + b'\n{"text": "' + text.encode() + b'"}\n' + LAST + b"\n", blocksize="16MiB")
    assert [len(t) for t in texts(batches)] == [3, 100_000_000, 3]
    assert bad(batches) == []
    assert len(batches) == 6  # blocks inside the document hold no line of their own


def test_a_line_beyond_the_limit_is_one_bad_record(work, monkeypatch):
    monkeypatch.setattr("gristmill.stages.text.io.reader.lines.MAX_LINE_BYTES", 200_000)
    monkeypatch.setattr("gristmill.stages.text.io.reader.lines.LONG_LINE_STEP", 50_000)
    data = GOOD + b'\n{"text": "' + b"x" * 1_000_000 + b'"}\n' + LAST + b"\n"
    for name, content in [("a.jsonl", data), ("a.jsonl.gz", gzip.compress(data))]:
        batches = work.read(content, name, blocksize=10_000)
        assert texts(batches) == ["one", "two"]
        [record] = bad(batches)
        assert record.position == len(GOOD) + 1
        assert "longer than 200000 bytes" in record.reason
        assert len(record.raw) <= 4096


def lines_of(count: int) -> bytes:
    return b"".join(b'{"text": "document number %d %d"}\n' % (i, i * 7919 % 10007) for i in range(count))


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for i in range(0, len(data), 10_000):
            stream.write(data[i : i + 10_000])
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "compress"),
    [("gz", gzip.compress), ("zst", zstd), ("bz2", SMALL_BZ2), ("xz", lzma.compress)],
)
def test_a_compressed_file_cut_short_costs_its_unreadable_rest(work, name, compress):
    whole = lines_of(40_000)
    data = compress(whole)
    batches = work.read(data[: len(data) * 2 // 3], f"a.jsonl.{name}", blocksize=200_000)
    found = texts(batches)
    [record] = bad(batches)
    assert 5_000 < len(found) < 40_000
    assert found == [f"document number {i} {i * 7919 % 10007}" for i in range(len(found))]
    rest = whole.find(b"document number %d " % len(found)) - len(b'{"text": "')
    assert record.position in (rest, rest - 1)  # the cut may be before a line feed
    assert "stream" in record.reason
    assert read(batches) == len(found) + 1


@pytest.mark.parametrize(("name", "compress"), [("gz", gzip.compress), ("bz2", SMALL_BZ2), ("xz", lzma.compress)])
def test_damage_inside_a_compressed_file_ends_it(work, name, compress):
    data = bytearray(compress(lines_of(40_000)))
    data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    batches = work.read(bytes(data), f"a.jsonl.{name}", blocksize=200_000)
    assert len(texts(batches)) > 5_000
    assert bad(batches)[-1].reason.startswith(f"the {dict(gz='gzip').get(name, name)} stream is damaged")


def test_what_is_named_compressed_and_is_not_is_read_all_the_same(work):
    assert texts(work.read(GOOD, "a.jsonl.gz")) == ["one"]
    assert texts(work.read(gzip.compress(GOOD), "b.jsonl")) == ["one"]
    assert texts(work.read(gzip.compress(b""), "c.jsonl.gz")) == []
    assert texts(work.read(b"", "d.jsonl.gz")) == []
    assert texts(work.read(gzip.compress(GOOD + b"\n") + gzip.compress(LAST), "e.jsonl.gz")) == ["one", "two"]


def test_a_file_that_has_vanished_is_an_error_not_a_bad_record(work, tmp_path):
    reader = JsonlReader(work.put("a.jsonl", GOOD))
    [block] = reader.source()
    (work.source / "a.jsonl").unlink()
    with pytest.raises(InputChanged, match=r"a\.jsonl .*no longer exists"):
        reader.process(block)


def test_fields_that_differ_between_files_and_lines(work):
    work.put("a.jsonl", b'{"text": "one", "n": 1, "x": true}\n')
    work.put(
        "b.jsonl", b'{"n": "two", "text": "two", "y": {"z": [1]}}\n{"text": "three", "n": 12345678901234567890123}\n'
    )
    [batch] = work.batches(JsonlReader(str(work.source), blocksize="1MB"))
    table = batch.data
    assert table.column("text").to_pylist() == ["one", "two", "three"]
    assert table.column("n").to_pylist() == ["1", '"two"', "12345678901234567890123"]  # JSON as it stands
    assert table.column("x").to_pylist() == [True, None, None]
    assert table.column("y").to_pylist() == [None, {"z": [1]}, None]


def parquet_bytes(table: pa.Table, **kwargs) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **kwargs)
    return sink.getvalue()


def test_a_parquet_file_cut_short_costs_itself(work):
    data = parquet_bytes(pa.table({"text": ["a", "b"]}))
    work.put("a.parquet", data[: len(data) // 2])
    work.put("b.parquet", data)
    work.put("c.parquet", b"")
    batches = work.batches(ParquetReader(str(work.source)))
    assert texts(batches) == ["a", "b"]
    assert [record.file.rpartition("/")[2] for record in bad(batches)] == ["a.parquet", "c.parquet"]
    assert all("not a readable Parquet file" in record.reason for record in bad(batches))


def test_a_damaged_row_group_costs_itself(work):
    table = pa.table({"text": [f"text number {i}" for i in range(300)]})
    data = bytearray(parquet_bytes(table, row_group_size=100, use_dictionary=False, write_statistics=False))
    about = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(1).column(0)
    data[about.data_page_offset : about.data_page_offset + about.total_compressed_size] = b"\xff" * (
        about.total_compressed_size
    )
    batches = work.batches(ParquetReader(work.put("a.parquet", bytes(data))))
    assert texts(batches) == [f"text number {i}" for i in [*range(100), *range(200, 300)]]
    [record] = bad(batches)
    assert record.position == 100
    assert "row group 1 with 100 rows" in record.reason


def test_rows_without_text_are_bad_records(work):
    invalid = pa.Array.from_buffers(pa.string(), 2, pa.array([b"fine", b"\xff"]).buffers())
    work.put("a.parquet", parquet_bytes(pa.table({"text": ["one", None, "two"], "n": [1, 2, 3]})))
    work.put("b.parquet", parquet_bytes(pa.table({"text": [1, 2]})))
    work.put("c.parquet", parquet_bytes(pa.table({"n": [1]})))
    work.put("d.parquet", parquet_bytes(pa.table({"text": invalid})))
    batches = work.batches(ParquetReader(str(work.source)))
    assert texts(batches) == ["one", "two", "fine"]
    assert [(r.file[-9:], r.position, r.reason.split(" in ")[0]) for r in bad(batches)] == [
        ("a.parquet", 1, "the field 'text' is null"),
        ("b.parquet", 0, "the field 'text' is of type int64, not a string,"),
        ("c.parquet", 0, "no field 'text'"),
        ("d.parquet", 1, "not valid UTF-8: byte 0xff at 0 of the text"),
    ]


def test_numbers_that_a_column_would_round_stay_as_they_stand(work):
    [batch] = work.read(b'{"text": "a", "n": 1.5}\n{"text": "b", "n": 12345678901234567890123}\n')
    assert batch.data.column("n").to_pylist() == ["1.5", "12345678901234567890123"]
    [batch] = work.read(b'{"text": "a", "n": 1.5}\n{"text": "b", "n": 2}\n{"text": "c"}\n', "b.jsonl")
    assert batch.data.column("n").to_pylist() == [1.5, 2.0, None]


@pytest.mark.parametrize("data", [b"", b"\n", b"no json\n"])
def test_blocks_without_a_document_are_empty_with_fields_too(work, data):
    [batch] = work.read(data, fields=["text", "n"])
    assert batch.num_items == 0 and batch.columns == ["text", "n"]


def test_an_error_of_the_storage_below_zstd_is_its_own():
    class Breaks(io.BytesIO):
        def read(self, size=-1):
            if self.tell() >= CHUNK_BYTES:
                raise TimeoutError("the storage is gone")
            return super().read(size)

    packed = zstd(np.random.default_rng(0).bytes(4 * CHUNK_BYTES))
    with pytest.raises(TimeoutError, match="the storage is gone"):
        list(decompressed(Breaks(packed)))
    assert b"".join(decompressed(io.BytesIO(zstd(b"abc" * 9)))) == b"abc" * 9


def test_lines_are_parsed_unless_each_was_a_document_before():
    for known, documents in ((None, 1), (1, 1), (3, 1), (2, 2)):
        records = Records(Wanted(columns=[]))
        records.add("a", GOOD + b"\nnothing\n", 0)
        batch = records.batch(known)
        assert batch.num_items == documents and len(batch.account.bad) == 2 - documents
        assert batch.data.column_names == [ID, RAW]


def twice(name: str) -> pa.Table:
    return pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=["text", name, name])


def test_two_columns_of_one_name_are_a_plain_error(work):
    path = work.put("a.parquet", parquet_bytes(twice("text")))
    for reader in (ParquetReader(path), ParquetReader(path, fields=["text"])):
        with pytest.raises(PlanError, match=r"a\.parquet has several columns with the name 'text'"):
            reader.linked([], [])
    with pytest.raises(PlanError, match="several columns with the name 'n'"):
        ParquetReader(work.put("b.parquet", parquet_bytes(twice("n")))).linked([], [])


def test_a_later_file_with_two_columns_of_one_name_is_a_bad_record_unless_they_are_not_read(work):
    work.put("a.parquet", parquet_bytes(pa.table({"text": ["one"]})))
    path = work.put("b.parquet", parquet_bytes(twice("n")))
    batches = work.batches(ParquetReader(str(work.source)))
    [record] = bad(batches)
    assert record.file == path and "several columns have the name 'n'" in record.reason
    assert texts(batches) == ["one"]
    assert texts(work.batches(ParquetReader(str(work.source), fields=["text"]))) == ["one", "a"]
