"""All parts of a Parquet output have one schema, whatever the blocks."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages.text.io.test_seen_columns import is_same

from gristmill.backends.local import LocalExecutor
from gristmill.cli.main import main
from gristmill.ledger.commits import CommitLog
from gristmill.pipeline import Pipeline, one_schema
from gristmill.pipeline.one_schema import PartsOfOutput
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter
from gristmill.tasks import DocumentBatch
from gristmill.tasks.json_text import canonical, plain_text

IDS = [{"id": 7, "text": "a b"}, {"id": "b1", "text": "c d"}, {"id": 8, "text": "e"}, {"text": "f g"}]


EACH, ALL = None, "1MB"
"""Block sizes by which each document, or all of them, are a block."""


def put(folder: Path, documents: Sequence[dict[str, Any]], name: str = "in") -> str:
    """A folder with a file for each document."""
    path = folder / name
    path.mkdir(exist_ok=True)
    for n, document in enumerate(documents):
        (path / f"{n:03d}.jsonl").write_bytes(json.dumps(document).encode() + b"\n")
    return str(path)


def parts(out: Path) -> list[Path]:
    return sorted(out.glob("part-*.parquet"))


def table_of(out: Path) -> pa.Table:
    """All parts as one data set, which have the same schema, notes included."""
    schemas = [pq.read_schema(path) for path in parts(out)]
    assert all(schema.equals(schemas[0], check_metadata=True) for schema in schemas)
    return ds.dataset([str(path) for path in parts(out)]).to_table()


def run(source: str, out: Path, blocksize: str | None = EACH, **options: Any) -> pa.Table:
    stages = [JsonlReader(source, blocksize=blocksize), ParquetWriter(str(out), **options)]
    Pipeline("types", stages=stages).run(LocalExecutor({"view": "off", "num_cpus": 2}))
    return table_of(out)


@pytest.mark.parametrize("blocksize", [EACH, ALL])
def test_ids_that_are_numbers_and_strings_are_text_in_all_parts(tmp_path, capsys, blocksize):
    table = run(put(tmp_path, IDS), tmp_path / "out", blocksize)
    assert table.schema.field("id").type == pa.large_string()
    assert table["id"].to_pylist() == ["7", "b1", "8", None]
    warnings = [line for line in capsys.readouterr().err.splitlines() if "column 'id'" in line]
    assert len(warnings) == 1 and "is written as text in all parts" in warnings[0]


@pytest.mark.parametrize("ident", ["7", "b1"])
@pytest.mark.parametrize("blocksize", [EACH, ALL])
def test_explain_finds_ids_of_both_kinds(tmp_path, capsys, ident, blocksize):
    run(put(tmp_path, IDS), tmp_path / "out", blocksize)
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "out"), ident]) == 0
    shown = next(line.strip() for line in capsys.readouterr().out.splitlines() if line.strip().startswith("id:"))
    assert shown in (f"id: {ident}", f"id: {ident!r}")


def test_a_schema_always_wins(tmp_path, capsys):
    table = run(put(tmp_path, IDS), tmp_path / "text", schema={"id": "string"})
    assert table.schema.field("id").type == pa.string() and table["id"].to_pylist() == ["7", "b1", "8", None]
    numbers = [{"id": 7, "text": "a"}, {"id": "9", "text": "b"}]
    for blocksize in (EACH, ALL):
        table = run(put(tmp_path, numbers, "n"), tmp_path / f"int{blocksize}", blocksize, schema={"id": "int64"})
        assert table["id"].to_pylist() == [7, 9]
    assert "column 'id'" not in capsys.readouterr().err


def test_types_that_go_together_are_widened_and_columns_that_are_missing_are_null(tmp_path, capsys):
    documents = [
        {"text": "a", "n": 1, "null": None, "list": [], "object": {"a": 1}},
        {"text": "b", "n": 1.5, "list": [1], "object": {"a": 2.5, "b": {"c": ["x"]}}, "more": True},
        {"text": "c", "list": [2.5, None], "object": None},
    ]
    table = run(put(tmp_path, documents), tmp_path / "out")
    types = {field.name: field.type for field in table.schema}
    assert types["n"] == pa.float64() and types["more"] == pa.bool_() and types["null"] == pa.null()
    assert types["list"].value_type == pa.float64()
    assert types["object"].field("a").type == pa.float64()
    for document, row in zip(documents, table.to_pylist(), strict=True):
        assert all(is_same(document.get(name), row[name]) for name in row)
    assert "column" not in capsys.readouterr().err


def test_numbers_that_a_common_type_would_round_are_text(tmp_path):
    documents = [{"text": "a", "n": 2**60 + 1}, {"text": "b", "n": 0.5}, {"text": "c", "n": 3}]
    for blocksize in (EACH, ALL):
        table = run(put(tmp_path, documents), tmp_path / f"out{blocksize}", blocksize)
        assert table["n"].to_pylist() == [str(2**60 + 1), "0.5", "3"]


def test_objects_without_a_type_in_common_are_json_text_in_all_parts(tmp_path, capsys):
    documents = [{"text": "a", "m": {"k": 1}}, {"text": "b", "m": {"k": [1.0]}}, {"text": "c", "m": "s"}]
    for blocksize in (EACH, ALL):
        table = run(put(tmp_path, documents), tmp_path / f"out{blocksize}", blocksize)
        assert table["m"].to_pylist() == ['{"k":1}', '{"k":[1]}', '"s"']
        assert table.schema.field("m").metadata == {b"gristmill": b"json"}
        assert capsys.readouterr().err.count("column 'm' holds") == 1
    back = tmp_path / "back"
    Pipeline("back", stages=[ParquetReader(str(tmp_path / "outNone")), JsonlWriter(back)]).run()
    lines = b"".join(path.read_bytes() for path in sorted(back.glob("part-*"))).splitlines()
    assert [json.loads(line)["m"] for line in lines] == [document["m"] for document in documents]


def test_nested_data_stays_nested_from_jsonl_to_parquet_and_back(tmp_path):
    documents = [{"text": f"t{n}", "meta": {"src": {"crawl": f"c{n}"}, "tags": [{"k": n}]}} for n in range(4)]
    table = run(put(tmp_path, documents), tmp_path / "one")
    assert pa.types.is_struct(table.schema.field("meta").type)
    assert table.to_pylist() == documents
    again = tmp_path / "again"
    Pipeline("copy", stages=[ParquetReader(str(tmp_path / "one")), ParquetWriter(str(again))]).run()
    assert table_of(again).equals(table)
    Pipeline("back", stages=[ParquetReader(str(again)), JsonlWriter(tmp_path / "back")]).run()
    lines = b"".join(path.read_bytes() for path in sorted((tmp_path / "back").glob("part-*"))).splitlines()
    assert [json.loads(line) for line in lines] == documents


def test_excluded_documents_have_one_schema_too(tmp_path):
    source = put(tmp_path, [{**document, "text": "x"} for document in IDS])
    stages = [
        JsonlReader(source, blocksize=EACH),
        ScoreFilter(WordCountFilter(2)),
        ParquetWriter(str(tmp_path / "out")),
    ]
    Pipeline("types", stages=stages).run(allow_empty=True)
    table = table_of(tmp_path / "out" / "excluded")
    assert table["id"].to_pylist() == ["7", "b1", "8", None]


def files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in parts(out)}


def test_workers_and_resumed_runs_write_the_same_bytes(tmp_path, monkeypatch):
    source = put(tmp_path, IDS * 5)
    run(source, tmp_path / "one")
    monkeypatch.setattr(one_schema, "HERE_BYTES", 0)  # parts are written again by workers
    run(source, tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two")
    # a run that is stopped after parts were written again, and before the log names them
    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "rewrite", lambda *arguments, **options: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(source, tmp_path / "three")
    run(source, tmp_path / "three")
    assert files(tmp_path / "one") == files(tmp_path / "three")
    result = Pipeline("types", stages=[JsonlReader(source), ParquetWriter(str(tmp_path / "three"))]).run()
    assert result.ledger is not None and result.ledger.resumed == len(result.ledger.blocks)


def test_a_stage_that_changes_types_by_block_gives_one_schema(tmp_path):
    class Count(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task):
            frame = task.to_pandas()
            frame["count"] = [len(text) if len(text) > 1 else "short" for text in frame["text"]]
            task.data = frame
            return task

    stages = [JsonlReader(put(tmp_path, IDS), blocksize=EACH), Count(), ParquetWriter(str(tmp_path / "out"))]
    Pipeline("types", stages=stages).run()
    assert table_of(tmp_path / "out")["count"].to_pylist() == ["3", "3", "short", "3"]


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.text(max_size=5) | st.integers(-3, 3),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from("abc"), x, max_size=3),
    max_leaves=6,
)
SIMPLE = st.sampled_from([7, 8, "b1", "7", 1.5, 2.0, True, None, {}, {"a": 1}, {"a": "x"}, [], [1], ["x"]])
DOCUMENTS = st.lists(st.dictionaries(st.sampled_from(["m", "n", "o"]), VALUES | SIMPLE), min_size=1, max_size=6)


def written(source: str, out: Path, blocksize: str | None) -> pa.Table:
    """The output of a run, without its processes."""
    reader, writer = JsonlReader(source, blocksize=blocksize), ParquetWriter(str(out))
    linked = reader.linked([], [writer])
    names = []
    for block in reader.source() or ():
        batch: Any = linked.process(block)
        batch.task_id = block.task_id
        names += [Path(path).name for path in writer.process(batch).data]
    PartsOfOutput(writer, LocalExecutor(), CommitLog(writer.folder), names).agree()
    return table_of(out)


@given(DOCUMENTS)
@settings(max_examples=150, deadline=None)
def test_whatever_the_types_there_is_one_schema_nothing_is_lost_and_blocks_do_not_matter(documents):
    folder = Path(tempfile.mkdtemp())
    source = put(folder, [{"text": "t", **document} for document in documents])
    tables = [written(source, folder / f"out{blocksize}", blocksize) for blocksize in (EACH, ALL)]
    for table in tables:
        assert table.schema.equals(tables[0].schema, check_metadata=True)
        assert table.to_pylist() == tables[0].to_pylist()
    for field in tables[0].schema:
        for document, value in zip(documents, tables[0][field.name].to_pylist(), strict=True):
            said = {"text": "t", **document}.get(field.name)
            if (field.metadata or {}).get(b"gristmill") == b"json":
                assert is_same(canonical(said), None if value is None else json.loads(value))
            elif field.type == pa.large_string():
                assert value == plain_text(said)
            else:
                assert is_same(said, value)


@pytest.mark.parametrize("stopped", ["never", "before a log", "between logs", "before the end"])
def test_documents_that_are_dropped_before_and_after_a_cut_have_one_schema(tmp_path, monkeypatch, stopped):
    texts = ["short", "a long text of words", "brief", "a long text of words", "another long text here", "tiny"]
    records = [{"id": n if n % 2 else f"b{n}", "text": text} for n, text in enumerate(texts)]
    source, out = put(tmp_path, records), tmp_path / "out"

    def curate() -> None:
        stages = [
            JsonlReader(source),
            ScoreFilter(WordCountFilter(min_words=2)),
            ExactDeduplication(),
            ScoreFilter(WordCountFilter(min_words=1, max_words=4)),
            ParquetWriter(str(out)),
        ]
        Pipeline("types", stages=stages).run(LocalExecutor({"view": "off", "num_cpus": 2}))

    if stopped != "never":
        whole, calls = CommitLog.rewrite, count()

        def rewrite(log: CommitLog, *arguments: Any, **options: Any) -> None:
            if stopped == "before a log" or (stopped == "between logs" and next(calls)):
                raise KeyboardInterrupt
            whole(log, *arguments, **options)

        def finish(*arguments: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(CommitLog, "rewrite", rewrite)
            patch.setattr(CommitLog, "finish", finish)
            curate()
    curate()
    names = {path.name for path in parts(out / "excluded")}
    assert any(".phase1." in name for name in names) and any(".phase1." not in name for name in names)
    table = table_of(out / "excluded")
    assert sorted(table.column("id").to_pylist()) == ["1", "3", "5", "b0", "b2"]
    assert main(["verify", str(out)]) == 0
    before = {path.name: path.read_bytes() for path in parts(out / "excluded")}
    curate()  # nothing is left to do, and nothing is taken for damaged
    assert {path.name: path.read_bytes() for path in parts(out / "excluded")} == before
