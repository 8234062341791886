import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill import Pipeline
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter
from gristmill.stages.text.tools import AddId, DocumentSplitter
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID


def batch(rows: int = 3, first: int = 0, **more) -> DocumentBatch:
    ids = [f"corpus.jsonl#{n}" for n in range(first, first + rows)]
    return DocumentBatch(data=pa.table({ID: ids, "text": ["a b"] * rows, **more}), task_id="12")


def ids(task: DocumentBatch) -> list[str]:
    return task.data["id"].to_pylist()


def test_an_id_depends_on_the_document_alone():
    whole = ids(AddId("id", id_prefix="doc").process(batch(4)))
    parts = [ids(AddId("id", id_prefix="doc").process(batch(4).slice(n, n + 1))) for n in range(4)]
    assert whole == [one for part in parts for one in part]
    assert len(set(whole)) == 4 and all(one.startswith("doc_") and len(one) == 28 for one in whole)


def test_with_a_start_index_documents_are_counted_in_their_block():
    assert ids(AddId("id", id_prefix="doc", start_index=0).process(batch())) == ["doc_12_0", "doc_12_1", "doc_12_2"]
    assert ids(AddId("id", start_index=7).process(batch(2))) == ["12_7", "12_8"]
    assert not AddId("id", start_index=0).split_on_failure


def test_batches_that_no_reader_made_are_counted_too():
    task = DocumentBatch(data=pa.table({"text": ["a", "b"]}), task_id="3")
    assert ids(AddId("id").process(task)) == ["3_0", "3_1"]


def test_ids_that_are_there_are_replaced_only_if_asked():
    with pytest.raises(ValueError, match=r"'id' already.*overwrite=True"):
        AddId("id").process(batch(id=[1, 2, 3]))
    assert ids(AddId("id", start_index=0, overwrite=True).process(batch(id=[1, 2, 3]))) == ["12_0", "12_1", "12_2"]


def test_segments_have_ids_of_their_own():
    task = AddId("id").process(DocumentSplitter(" ").process(batch()))
    assert len(set(ids(task))) == 6


def test_ids_are_unique_in_a_run_and_the_same_in_each():
    def run() -> list[list[str]]:
        tasks = [batch(5, 5 * n) for n in range(6)]
        pipeline = Pipeline("ids").add_stage(AddId("id")).add_stage(AddId("number", start_index=0))
        rows = [task.data.select(["id", "number"]).to_pylist() for task in pipeline.run(initial_tasks=tasks)]
        return sorted([row["id"], row["number"]] for part in rows for row in part)

    rows = run()
    assert rows == run()
    assert len({one for one, _ in rows}) == len({number for _, number in rows}) == 30


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_ids_in_files_are_seen_though_nothing_else_needs_them(tmp_path, kind):
    table = {"text": ["a", "b"], "id": ["mine", None]}
    if kind == "jsonl":
        path = tmp_path / "a.jsonl"
        path.write_bytes(b'{"text": "a", "id": "mine"}\n{"text": "b"}\n')
        reader, writer = JsonlReader(str(path)), JsonlWriter(tmp_path / "out")
    else:
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table(table), path)
        reader, writer = ParquetReader(str(path)), ParquetWriter(tmp_path / "out", fields=["text", "key"])
    [block] = reader.source()
    with pytest.raises(ValueError, match="'id' already"):
        AddId("id").process(reader.linked([], [AddId("id"), writer]).process(block))
    [block] = reader.source()
    read = reader.linked([], [AddId("key"), writer]).process(block)
    assert "key" not in read.columns  # looked for, and not made up where it is not
    assert "id" not in reader.linked([], [AddId("id", overwrite=True), writer]).process(block).columns
    assert "key" in AddId("key").process(read).columns
