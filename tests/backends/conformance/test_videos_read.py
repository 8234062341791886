"""Videos are read, split and encoded to the same bytes on every executor."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.backends.conformance.executors import Kind

pytest.importorskip("av")

from tests.stages.video.io.test_runs import curate, make_input, written

from gristmill.backends.local import LocalExecutor


@pytest.mark.filterwarnings("ignore::gristmill.backends.capabilities.LimitedExecutor")
def test_every_executor_makes_the_same_clips(kind: Kind, tmp_path: Path) -> None:
    folder = make_input(tmp_path / "in", 5)
    expected = curate(folder, tmp_path / "one").run(LocalExecutor({"num_cpus": 1, "view": "off"}))
    options = kind.other if kind.name == "xenna" else {}  # in streaming mode each step needs a CPU of its own
    result = curate(folder, tmp_path / "other").run(kind.make(**options))
    assert written(tmp_path / "one") == written(tmp_path / "other")
    assert result.ledger is not None and expected.ledger is not None
    assert result.ledger.plain() == expected.ledger.plain() and not result.ledger.problems
