"""A source of the user's own: its tasks are numbered, it accounts for its documents, and a run of it resumes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.ledger.conftest import written

from gristmill.backends.local import LocalExecutor
from gristmill.errors import PipelineError
from gristmill.pipeline import Pipeline
from gristmill.stages.protocols import Source
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlWriter
from gristmill.tasks import DocumentBatch, FileGroupTask
from gristmill.tasks.document import ID


class Numbers(Source[FileGroupTask, DocumentBatch]):
    """Five documents of 0 to 4 words in each of four blocks."""

    def __init__(self, ids: bool = True, counts: bool = True) -> None:
        self.ids, self.counts = ids, counts

    def source(self) -> list[FileGroupTask]:
        return [FileGroupTask(data=[str(block)]) for block in range(4)]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["text"]

    def process(self, task: FileGroupTask) -> DocumentBatch:
        block = int(task.data[0])
        ids = {ID: [f"numbers#{5 * block + row}" for row in range(5)]} if self.ids else {}
        batch = DocumentBatch(pa.table({**ids, "text": [f"{block} " * row for row in range(5)]}))
        if self.counts:
            batch.account.read["numbers"] = batch.num_items
        return batch


def run(out: Path, source: Numbers):
    stages = [source, ScoreFilter(WordCountFilter(min_words=2)), JsonlWriter(str(out))]
    return Pipeline("own", stages=stages).run(LocalExecutor(config={"view": "off", "num_cpus": 2}))


def test_its_documents_are_accounted_for_and_a_lost_block_is_done_again(tmp_path):
    whole = run(tmp_path / "out", Numbers()).ledger.total()
    assert (whole.documents, whole.kept, whole.dropped.total()) == (20, 12, 8)
    first = written(tmp_path / "out")
    assert run(tmp_path / "out", Numbers()).ledger.resumed == 4
    (tmp_path / "out/part-000002.jsonl").unlink()
    assert run(tmp_path / "out", Numbers()).ledger.resumed == 3
    assert written(tmp_path / "out") == first


@pytest.mark.parametrize("missing", ["ids", "counts"])
def test_documents_without_ids_or_counts_stop_the_run_with_what_to_do(tmp_path, missing):
    with pytest.raises(PipelineError, match=r"'Numbers' returned documents without ids.*batch\.account\.read\[name\]"):
        run(tmp_path / "out", Numbers(**{missing: False}))
