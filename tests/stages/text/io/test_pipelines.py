"""Readers and writers in pipelines that run."""

from __future__ import annotations

import gzip
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.errors import PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import arguments_of
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter
from gristmill.tasks import DocumentBatch, FileGroupTask


class Even(DocumentFilter):
    def score_document(self, text):
        return int(text.split()[0])

    def keep_document(self, score):
        return score % 2 == 0


LINES = [b'{"id": %d, "text": "%d some text %s"}\n' % (i, i, b"x" * (i % 200)) for i in range(3000)]


def content(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("part-*")))


def test_a_pipeline_in_one_step_reads_filters_and_writes(work):
    work.put("a.jsonl", b"".join(LINES[:1000]))
    work.put("b.jsonl", b"".join(LINES[1000:]))
    stages = [
        JsonlReader(str(work.source), blocksize=50_000),
        ScoreFilter(Even(), score_field="number"),
        JsonlWriter(work.folder / "out"),
    ]
    pipeline = Pipeline("even", stages=stages)
    assert len(pipeline.plan().steps) == 2  # a filter of the user's own can fail on a document: it is cut off
    assert len(Pipeline("own", stages=[stages[0], ScoreFilter(WordCountFilter()), stages[2]]).plan().steps) == 1
    pipeline.run()
    kept = [line[:-2] + b',"number":%d}\n' % i for i, line in enumerate(LINES) if i % 2 == 0]
    assert content(work.folder / "out") == b"".join(kept)


def test_a_compressed_file_is_read_in_a_step_of_its_own(work):
    work.put("a.jsonl.gz", gzip.compress(b"".join(LINES)))
    stages = [JsonlReader(str(work.source), blocksize=50_000), JsonlWriter(work.folder / "out")]
    pipeline = Pipeline("copy", stages=stages)
    assert len(pipeline.plan().steps) == 2
    pipeline.run()
    assert content(work.folder / "out") == b"".join(LINES)
    assert (work.folder / "out" / "part-000000.00001.jsonl").exists()


def test_groups_of_files_can_be_given(work):
    tasks = [FileGroupTask(data=[work.put(f"{i}.jsonl", LINES[i]) for i in (2 * n, 2 * n + 1)]) for n in range(2)]
    stages = [JsonlReader(), ParquetWriter(work.folder / "pq")]
    Pipeline("given", stages=stages).run(initial_tasks=tasks)
    stages = [ParquetReader(str(work.folder / "pq"), fields=["text"]), JsonlWriter(work.folder / "out")]
    Pipeline("back", stages=stages).run()
    assert content(work.folder / "out").count(b"\n") == 4
    assert content(work.folder / "out").startswith(b'{"text":"0 some text "}\n')


def test_input_that_is_not_there_stops_the_run_before_it_starts(work):
    with pytest.raises(PlanError, match="does not exist"):
        Pipeline("x", stages=[JsonlReader(str(work.source / "no")), JsonlWriter(work.folder / "out")]).run()
    assert not (work.folder / "out").exists()


def test_a_column_that_the_reader_does_not_give_is_known_before_the_run(work):
    class Needs(ProcessingStage[DocumentBatch, DocumentBatch]):
        def inputs(self):
            return ["data"], ["url"]

        def process(self, task):
            return task

    path = work.put("a.jsonl", LINES[0])
    with pytest.raises(PlanError, match="url"):
        Pipeline("x", stages=[JsonlReader(path, fields=["text"]), Needs(), JsonlWriter("out")]).plan()


def test_a_parquet_file_whose_text_is_none_or_is_missing_is_reported_before_the_run(work):
    path = work.folder / "a.parquet"
    pq.write_table(pa.table({"text": ["a"], "score": [1.5], "nothing": pa.nulls(1)}), path)

    def plan(name, *stages):
        reader = ParquetReader(str(path), text_field=name)
        return Pipeline("x", stages=[reader, *stages, ParquetWriter(work.folder / "out")]).plan()

    with pytest.raises(PlanError, match=r"the column 'score' of .*a.parquet is of type double, not text"):
        plan("score")
    with pytest.raises(PlanError, match="have no field 'txt'; they have: nothing, score, text"):
        plan("txt")
    with pytest.raises(PlanError, match=r"needs the field 'scores'.* Did you mean 'score'?"):
        plan("text", ScoreFilter(WordCountFilter(), text_field="scores"))
    for name in ("text", "nothing", None):
        plan(name)


def test_stages_are_sent_to_workers_without_the_list_of_files(work):
    reader = JsonlReader(work.put("a.jsonl", b"".join(LINES)), blocksize=10)
    assert len(reader.source()) > 1000
    assert len(pickle.dumps(reader.linked([], []))) < 2000
    assert arguments_of(reader) == {"file_paths": str(work.source / "a.jsonl"), "blocksize": 10}
    writer = JsonlWriter("x", fields=["text"])
    assert writer.folder is writer.folder
    assert pickle.loads(pickle.dumps(writer)).fields == ["text"]


def test_importing_readers_and_writers_loads_nothing_heavy():
    heavy = "[m for m in ('numba', 'pyarrow', 'pandas', 's3fs', 'llvmlite') if m in sys.modules]"
    code = f"import sys, gristmill.stages.text.io.reader, gristmill.stages.text.io.writer; print({heavy})"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_local_run_loads_neither_fsspec_nor_the_simulator(work):
    work.put("a.jsonl", b"".join(LINES))
    code = f"""
import sys
from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.text.io import JsonlReader, JsonlWriter
stages = [JsonlReader({str(work.source)!r}), JsonlWriter({str(work.source.parent / "out")!r})]
assert Pipeline("light", stages=stages).run(LocalExecutor({{"view": "off"}})).ok
print([m for m in sys.modules if m == "fsspec" or m.startswith("gristmill.scheduling.simulator")])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
