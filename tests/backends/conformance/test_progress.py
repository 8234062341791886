"""A bridge writes how far a run has come while it runs."""

from __future__ import annotations

import io
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gristmill.backends.engine.executor_config import ConfigError
from gristmill.backends.ray_data import RayDataExecutor
from gristmill.backends.xenna import XennaExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch

HANG_S = 300.0


@dataclass
class OnlyOne(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Lets one block pass, and all others only once the flag is there."""

    flag: str
    name: str = "OnlyOne"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        try:
            os.close(os.open(f"{self.flag}.first", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            until = time.monotonic() + HANG_S
            while not os.path.exists(self.flag) and time.monotonic() < until:
                time.sleep(0.05)
        return task


class Watched(io.StringIO):
    """Standard error that makes the flag when a line reports that one block is done."""

    def __init__(self, flag: Path) -> None:
        super().__init__()
        self.flag = flag

    def write(self, text: str) -> int:
        if re.search(r" 1/2 blocks \| (30|60) documents read, 30 kept \| tasks: \d+ done, [1-9]\d* open", text):
            self.flag.touch()
        return super().write(text)


@pytest.mark.timeout(600)
def test_blocks_and_documents_are_reported_while_others_are_open(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Ray Data; Xenna has the same accounts."""
    (tmp_path / "in").mkdir()
    for name in "ab":
        lines = [json.dumps({"id": f"{name}{i}", "text": "some words"}) + "\n" for i in range(30)]
        (tmp_path / "in" / f"{name}.jsonl").write_text("".join(lines))
    flag = tmp_path / "flag"
    stderr = Watched(flag)
    monkeypatch.setattr("sys.stderr", stderr)
    stages = [JsonlReader(str(tmp_path / "in")), OnlyOne(str(flag)), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("progress", stages=stages).run(RayDataExecutor({"logging_interval": 0.2}))
    assert flag.exists(), stderr.getvalue()
    (last,) = [line for line in stderr.getvalue().splitlines() if "2/2 blocks" in line][-1:]
    assert re.fullmatch(
        r"gristmill: \d+:\d\d, 2/2 blocks \| 60 documents read, 60 kept \| tasks: \d+ done, 0 open", last
    )


@pytest.mark.parametrize("executor", [RayDataExecutor, XennaExecutor])
def test_a_view_that_a_bridge_does_not_have_is_refused(executor: type) -> None:
    with pytest.raises(ConfigError, match="view is 'auto', 'lines' or 'off', not 'live'"):
        executor({"view": "live"})
