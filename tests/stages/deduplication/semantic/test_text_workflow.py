"""Semantic deduplication of texts with all-MiniLM-L6-v2: the workflow, and the stages in one pipeline file."""

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from semantic_models import records, unit, write_jsonl
from tests.stages.deduplication.in_process import InProcess

from gristmill import Pipeline
from gristmill.backends.base import Executor
from gristmill.cli.main import main
from gristmill.dedup import TextSemanticDeduplicationWorkflow
from gristmill.errors import OutputChanged, PlanError
from gristmill.models.checkpoint import Checkpoint
from gristmill.stages.text.embedders.base import DEFAULT_MODEL

TOPICS = [
    ("The cat sleeps on the warm windowsill all day.", "All day long the cat is asleep on the warm window sill."),
    ("The central bank raised interest rates by half a point.", "Interest rates were raised half a point by the bank."),
    ("Bake the bread for forty minutes at 220 degrees.", "The bread is baked at 220 degrees for forty minutes."),
    (
        "The telescope found water vapour on a distant planet.",
        "On a distant planet the telescope detected water vapour.",
    ),
    ("Heavy rain flooded the old town on Sunday night.", "On Sunday night heavy rain flooded the old town."),
]
"""Sentences, each with a paraphrase."""


@pytest.fixture(scope="module")
def reference():
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(Checkpoint(DEFAULT_MODEL).folder()), device="cpu")


@pytest.fixture
def source(tmp_path):
    """A folder and its documents, in random order, an exact copy and an empty one among them. Two have no text."""
    seed = random.randrange(2**31)
    print("seed", seed)
    texts = [text for pair in TOPICS for text in pair] + [TOPICS[0][0], ""]
    random.Random(seed).shuffle(texts)
    rows = [{"id": f"d{n}", "text": text, "lang": "en"} for n, text in enumerate(texts)]
    bad = [{"id": "none", "text": None, "lang": "en"}, {"id": "number", "text": 7, "lang": "en"}]
    write_jsonl(tmp_path / "in" / "a.jsonl", [*rows[:5], *bad])
    write_jsonl(tmp_path / "in" / "b.jsonl", rows[5:])
    return tmp_path / "in", rows


def expected_duplicates(rows, reference, eps):
    """Ids of documents with one before them that is similar enough."""
    similarity = unit(reference.encode([row["text"] for row in rows]))
    similarity = np.tril(similarity @ similarity.T, -1)
    return {row["id"] for row, best in zip(rows, similarity.max(axis=1), strict=True) if best >= 1 - eps}


def flow(source, out, **options):
    options = {"eps": 0.2, "which_to_keep": "first", "id_field": "id", "verbose": False, **options}
    return TextSemanticDeduplicationWorkflow(str(source), str(out), **options)


def lines(folder):
    return [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


def contents(out):
    names = ("pairwise_results", "duplicates", "deduplicated", "embeddings", "quarantine")
    return {
        str(file.relative_to(out)): file.read_bytes()
        for name in names
        for file in (out / name).rglob("*")
        if file.is_file() and "_gristmill" not in file.parts
    }


def test_from_files_to_files(source, tmp_path, reference, capsys):
    folder, rows = source
    gone = expected_duplicates(rows, reference, 0.2)
    assert len(gone) >= 5

    result = flow(folder, tmp_path / "out", metadata_fields=["lang"]).run(InProcess())

    assert lines(tmp_path / "out" / "deduplicated") == [json.dumps(row) for row in rows if row["id"] not in gone]
    found = {record["id"]: record for record in records(tmp_path / "out")}
    assert set(found) == gone
    assert all(
        record["kept_source_id"].startswith(f"{folder}/") and record["lang"] == "en" for record in found.values()
    )
    assert (result.documents, result.unreadable, result.duplicates, result.kept) == (14, 2, len(gone), 12 - len(gone))
    assert len(lines(tmp_path / "out" / "deduplicated" / "quarantine")) == 2
    assert (result.dim, result.clusters) == (384, 1)
    assert list(result.seconds) == ["embed", "read", "kmeans", "assign", "pairwise", "removal"]
    assert set(result.paths) == {"pairwise_results", "duplicates", "deduplicated", "embeddings"}
    table = pa.concat_tables(
        pq.read_table(file) for file in sorted((tmp_path / "out" / "embeddings").glob("*.parquet"))
    )
    assert table.column_names == ["embeddings", "id", "lang", "gristmill_document_id"]
    by_id = dict(zip(table.column("id").to_pylist(), table.column("embeddings").to_pylist(), strict=True))
    texts = {row["id"]: row["text"] for row in rows}
    for name, vector in by_id.items():
        assert np.abs(np.array(vector) - reference.encode(texts[name])).max() < 1e-4

    first = next(iter(found.values()))
    assert main(["explain", str(tmp_path / "out"), first["source_id"]]) == 0
    assert f"semantic duplicate of {first['kept_id']!r}" in capsys.readouterr().out


def test_the_stages_in_one_pipeline_file_remove_the_same(source, tmp_path, reference):
    folder, rows = source
    (tmp_path / "p.yaml").write_text(
        f"""
stages:
  - JsonlReader: {{file_paths: {folder}}}
  - EmbeddingCreatorStage: {{dtype: float16}}
  - SemanticDeduplication: {{eps: 0.2, which_to_keep: first, id_field: id, drop_embeddings: true}}
  - JsonlWriter: {{path: {tmp_path}/out}}
"""
    )
    result = Pipeline.from_yaml(tmp_path / "p.yaml").run(InProcess())
    gone = expected_duplicates(rows, reference, 0.2)
    assert [json.loads(line) for line in lines(tmp_path / "out")] == [row for row in rows if row["id"] not in gone]
    assert {record["document_id"] for record in records(tmp_path / "out")} == gone
    assert f"{len(gone)} of 12 documents are duplicates at eps 0.2" in result.summary().replace("\n    ", " ")


class Stopped(Exception):
    pass


class StopsAt(InProcess):
    """Fails when a step of this name begins."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def execute(self, plan, initial_tasks, keep_outputs):
        if self.name in plan.name:
            raise Stopped
        return super().execute(plan, initial_tasks, keep_outputs)


class Records(InProcess):
    """Remembers the names of its plans, and how many tasks each got."""

    def __init__(self):
        super().__init__()
        self.ran = []

    def execute(self, plan, initial_tasks, keep_outputs):
        tasks = list(initial_tasks or [])
        self.ran.append((plan.name.rpartition(": ")[2], len(tasks)))
        return super().execute(plan, tasks, keep_outputs)


@pytest.mark.parametrize("step", ["read", "kmeans", "assign", "pairwise", "removal"])
def test_a_run_that_was_stopped_embeds_nothing_again(step, source, tmp_path):
    folder, _ = source
    flow(folder, tmp_path / "whole").run(InProcess())
    stopping: Executor = StopsAt(f"deduplication: {step}")
    with pytest.raises(Stopped):
        flow(folder, tmp_path / "out").run(stopping)
    again = Records()
    flow(folder, tmp_path / "out").run(again)
    assert dict(again.ran).get("embeddings", 0) == 0
    assert step in dict(again.ran)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


class StopsAfterOneBlock(InProcess):
    """Fails when one block is embedded."""

    def execute(self, plan, initial_tasks, keep_outputs):
        super().execute(plan, list(initial_tasks)[:1], keep_outputs)
        raise Stopped


def test_embeddings_are_made_block_by_block(source, tmp_path):
    folder, _ = source
    flow(folder, tmp_path / "whole").run(InProcess())
    with pytest.raises(Stopped):
        flow(folder, tmp_path / "out").run(StopsAfterOneBlock())
    again = Records()
    flow(folder, tmp_path / "out").run(again)
    assert again.ran[0] == ("embeddings", 1)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_another_threshold_uses_the_embeddings_in_the_cache_again(source, tmp_path):
    folder, _ = source
    cache = tmp_path / "cache"
    flow(folder, tmp_path / "one", cache_path=cache).run(InProcess())
    before = {file: file.stat().st_mtime_ns for file in (cache / "embeddings").glob("*.parquet")}
    loose = flow(folder, tmp_path / "two", cache_path=cache, eps=0.9, output_filetype="parquet").run(InProcess())
    assert {file: file.stat().st_mtime_ns for file in (cache / "embeddings").glob("*.parquet")} == before
    assert loose.kept < len(lines(tmp_path / "one" / "deduplicated"))
    written = sorted((tmp_path / "two" / "deduplicated").glob("*.parquet"))
    assert sum(pq.read_table(file).num_rows for file in written) == loose.kept
    with pytest.raises(OutputChanged, match="embeddings"):  # of another model
        flow(folder, tmp_path / "three", cache_path=cache, embedding_max_seq_length=32).run(InProcess())
    finished = Records()
    flow(folder, tmp_path / "one", cache_path=cache).run(finished)
    assert finished.ran == []
    with pytest.raises(OutputChanged, match="max_seq_length"):
        flow(folder, tmp_path / "one", cache_path=cache, embedding_max_seq_length=32).run(InProcess())
    flow(folder, tmp_path / "one", cache_path=cache, embedding_max_seq_length=32).run(InProcess(), fresh=True)
    assert {file: file.stat().st_mtime_ns for file in (cache / "embeddings").glob("*.parquet")} != before


def test_what_is_wrong_is_reported_before_anything_is_embedded(source, tmp_path):
    folder, _ = source
    for options, message in (
        ({"text_field": "body"}, "no field 'body' for their embedded texts"),
        ({"id_field": "key"}, "no field 'key' for their ids"),
        ({"which_to_keep": "best", "score_field": "score"}, "no field 'score' for their scores"),
    ):
        executor = Records()
        with pytest.raises(PlanError, match=message):
            flow(folder, tmp_path / "out", **options).run(executor)
        assert executor.ran == []
    for options, message in (
        ({"eps": None}, "perform_removal needs eps"),
        ({"n_clusters": 0}, "n_clusters must be"),
        ({"kmeans_init": "best"}, "init must be one of"),
        ({"embedding_dtype": "int8"}, "dtype must be one of"),
        ({"output_filetype": "csv"}, "output_filetype must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            flow(folder, tmp_path / "out", **options)
