"""Unchanged values are written as they were read, whatever the block size. A change affects nothing else."""

from __future__ import annotations

import bz2
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages.text.io.conftest import Work

from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch

NUMBERS = ["0", "-0", "1", "1.0", "1E5", "1e-7", "-0.0", "123456789012345678901234567890", "0.1000", "1e15"]
SCALARS = st.sampled_from([*NUMBERS, "true", "false", "null"]) | st.builds(
    json.dumps, st.text(max_size=30) | st.sampled_from(["2020-01-01", "a/b"]), ensure_ascii=st.booleans()
)
SPACE = st.sampled_from(["", " ", "\t", "  "])


@st.composite
def containers(draw: Any, inner: Any) -> str:
    parts = draw(st.lists(inner, max_size=3))
    a, b = draw(SPACE), draw(SPACE)
    if draw(st.booleans()):
        return f"[{a}" + f"{a},{b}".join(parts) + f"{b}]"
    names = [json.dumps(draw(st.text(max_size=4))) for _ in parts]
    return f"{{{a}" + f"{a},{b}".join(f"{n}{b}:{a}{v}" for n, v in zip(names, parts, strict=True)) + f"{b}}}"


VALUES = st.recursive(SCALARS, containers, max_leaves=6)
OTHER_KEYS = st.sampled_from(["id", "n", "when", "größe", "n", "m"]).map(json.dumps) | st.just(r'"\u006e"')


@st.composite
def documents(draw: Any) -> bytes:
    """A line with a text among other members, some of them there twice, spaces anywhere."""
    members = [(draw(OTHER_KEYS), draw(VALUES)) for _ in range(draw(st.integers(0, 4)))]
    text = ('"text"', json.dumps(draw(st.text(max_size=40)), ensure_ascii=draw(st.booleans())))
    members.insert(draw(st.integers(0, len(members))), text)
    if draw(st.booleans()):
        members.insert(0, ('"text"', '"an earlier one"'))
    a, b = draw(SPACE), draw(SPACE)
    line = f"{a}{{{b}" + f"{a},{b}".join(f"{k}{a}:{b}{v}" for k, v in members) + f"{b}}}{a}"
    return line.encode()


class Pass(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage that declares nothing."""

    def process(self, task):
        return task


class ThroughPandas(Pass):
    def process(self, task):
        task.data = task.to_pandas()
        return task


def new_work() -> Any:
    return Work(Path(tempfile.mkdtemp()))


@given(st.lists(documents(), max_size=6), st.sampled_from([[], [Pass()], [ThroughPandas()]]))
@settings(max_examples=120, deadline=None)
def test_untouched_documents_are_written_byte_for_byte(lines, between):
    data = b"".join(line + b"\n" for line in lines)
    work = new_work()
    reader = JsonlReader(work.put("a.jsonl", data))
    assert work.through(reader, *between, JsonlWriter(work.folder / "out")) == data


@given(st.lists(documents(), min_size=1, max_size=5))
@settings(max_examples=80, deadline=None)
def test_changed_and_added_values_are_written_and_nothing_else_changes(lines):
    class Shout(ProcessingStage[DocumentBatch, DocumentBatch]):
        def outputs(self):
            return ["data"], ["text", "n", "score"]

        def process(self, task):
            table = task.data
            where = table.schema.get_field_index("text")
            table = table.set_column(where, "text", pa.array([text + "!" for text in table["text"].to_pylist()]))
            if "n" in table.column_names:
                table = table.drop_columns("n")
            rows = table.num_rows
            table = table.append_column("n", pa.array([7] * rows)).append_column("score", pa.array([0.5] * rows))
            task.data = table
            return task

    work = new_work()
    out = work.through(
        JsonlReader(work.put("a.jsonl", b"\n".join(lines))), Shout(), JsonlWriter(work.folder / "out")
    ).split(b"\n")
    assert out.pop() == b""
    assert len(out) == len(lines)
    for line, written in zip(lines, out, strict=True):
        before, after = json.loads(line), json.loads(written)
        assert after == {**before, "text": before["text"] + "!", "n": 7, "score": 0.5}
        assert list(after)[: len(before)] == list(before)
        # what is not replaced stands as it stood: take the new values out again, and the old line is there
        assert written.count(b'"earlier"') == line.count(b'"earlier"')
        assert written.split(b"{", 1)[0] == line.split(b"{", 1)[0]


def corpus(count: int = 60) -> bytes:
    lines = [b'{"text": "%s", "n": %d}' % (b"word " * (i * 7 % 10), i) for i in range(count)]
    lines[5] = b""
    lines[9] = b"   "
    lines[11] = b"{broken"
    lines[20] += b"\r"
    return b"\xef\xbb\xbf" + b"\n".join(lines)


def expected() -> bytes:
    lines = corpus().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return b"".join(line.rstrip(b"\r") + b"\n" for line in lines if line.strip() and line != b"{broken")


@pytest.mark.parametrize("blocksize", [1, 7, 64, 100, 1000, 100_000, None])
@pytest.mark.parametrize("compress", [None, gzip.compress, bz2.compress])
def test_what_is_written_does_not_depend_on_blocksize(work, blocksize, compress):
    data = corpus()
    cut = data.index(b"\n", 1000) + 1
    for name, part in [("a.jsonl", data[:cut]), ("b.jsonl", data[cut:])]:
        work.put(name + (".gz" if compress else ""), compress(part) if compress else part)
    reader = JsonlReader(str(work.source), blocksize=blocksize)
    assert work.through(reader, JsonlWriter(work.folder / "out")) == expected()
    batches = work.batches(reader)
    assert sum(sum(batch.account.read.values()) for batch in batches) == 58
    assert [record.raw for batch in batches for record in batch.account.bad] == [b"{broken"]
    ids = [ident for batch in batches for ident in batch.data.column("_gristmill_id").to_pylist()]
    assert len(set(ids)) == len(ids) == 57
    for batch in batches:  # positions are those in the uncompressed file
        for ident, raw in zip(batch.data["_gristmill_id"].to_pylist(), batch.data["_gristmill_raw"], strict=True):
            path, _, offset = ident.rpartition("#")
            whole = Path(path).read_bytes()
            whole = compress.__globals__["decompress"](whole) if compress else whole
            line = whole[int(offset) :].split(b"\n")[0]
            assert line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r") == raw.as_py()


def test_a_compressed_stream_is_cut_into_blocks(work):
    data = b'{"text": "%s"}\n' % (b"x" * 985) * 5000
    batches = work.read(gzip.compress(data), "a.jsonl.gz", blocksize=100_000)
    sizes = [batch.data.column("_gristmill_raw").nbytes for batch in batches]
    assert len(batches) > 30
    assert max(sizes) < 200_000
    assert [batch.task_id for batch in batches[:2]] == ["0.0", "0.1"]


def test_fields_are_kept_as_they_stand(work):
    data = b'{"x": 1, "n": 1.0, "text":  "a\\u0062", "n": 1e5}\n'
    data += b'{"text": "b", "id": 12345678901234567890123}\n{"text":""}\n'
    wanted = b'{"text":"a\\u0062","n":1e5}\n{"text":"b","id":12345678901234567890123}\n{"text":""}\n'
    path = work.put("a.jsonl", data)
    fields = ["text", "id", "n"]
    by_reader = work.through(JsonlReader(path, fields=fields), JsonlWriter(work.folder / "out1"))
    by_writer = work.through(JsonlReader(path), JsonlWriter(work.folder / "out2", fields=fields))
    assert by_reader == by_writer == wanted


@pytest.mark.parametrize(
    ("compression", "extension", "undo"),
    [
        ("gzip", ".jsonl.gz", gzip.decompress),
        ("bz2", ".jsonl.bz2", bz2.decompress),
        ("zstd", ".jsonl.zst", lambda data: pa.input_stream(pa.BufferReader(data), compression="zstd").read()),
    ],
)
def test_compressed_output_is_the_same_each_time(work, compression, extension, undo):
    reader = JsonlReader(work.put("a.jsonl", corpus()))
    first, second = (
        work.through(reader, JsonlWriter(work.folder / name, compression=compression)) for name in ("one", "two")
    )
    assert first == second
    assert undo(first) == expected()
    assert [path.name for path in (work.folder / "one").iterdir()] == [f"part-000000{extension}"]
