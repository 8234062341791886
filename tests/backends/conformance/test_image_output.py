"""Images are written to the same bytes on every executor."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.backends.conformance.executors import Kind
from tests.images.samples import image_corpus
from tests.ledger.conftest import written
from tests.ledger.test_image_output import curate

from gristmill.backends.local import LocalExecutor


@pytest.mark.filterwarnings("ignore::gristmill.backends.capabilities.LimitedExecutor")
@pytest.mark.timeout(600)
def test_every_executor_writes_the_same_shards_and_dropped_images(kind: Kind, tmp_path: Path) -> None:
    source = image_corpus(tmp_path / "in")
    expected = curate(source, tmp_path / "one").run(LocalExecutor({"num_cpus": 1, "view": "off"}))
    result = curate(source, tmp_path / "other").run(kind.make())
    assert len(written(tmp_path / "one")) > 10 and written(tmp_path / "one") == written(tmp_path / "other")
    assert result.ledger is not None and expected.ledger is not None
    assert result.ledger.total() == expected.ledger.total()
