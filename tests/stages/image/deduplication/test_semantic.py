"""Semantic deduplication works on images with embeddings as it does on texts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'gristmill[image]'")

from tests.stages.image.deduplication.corpus import copies, ids_in, removed_in, run, write_images

from gristmill.dedup import SemanticDeduplication
from gristmill.pipeline.explain import explain
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io import ParquetReader, ParquetWriter
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import ImageBatch


class AsImages(ProcessingStage[DocumentBatch, ImageBatch]):
    """Documents as images, with an embedding for each: that of its family, and a little of its own."""

    def outputs(self):
        return ["data"], ["embeddings"]

    def process(self, task):
        names = task.data.column("image_id").to_pylist()
        rows = [np.random.default_rng(int(name.split()[0])).normal(size=32) for name in names]
        rows = [row + np.random.default_rng(n).normal(size=32) * 0.001 for n, row in enumerate(rows)]
        return ImageBatch(data=task.data.append_column("embeddings", pa.array([row.tolist() for row in rows])))


@pytest.mark.parametrize("workers", [0, 2])
def test_images_with_near_embeddings_are_removed_and_explained(tmp_path, workers):
    images = [*copies(1), *copies(2), *copies(3)]
    source = write_images(tmp_path / "in", images)
    stage = SemanticDeduplication(
        eps=0.01, which_to_keep="first", n_clusters=2, id_field="image_id", drop_embeddings=True
    )
    run(source, tmp_path / "out", AsImages(), stage, workers=workers)
    assert ids_in(tmp_path / "out") == ["1 original", "2 original", "3 original"]
    removed = removed_in(tmp_path / "out")
    assert len(removed) == 18 and removed["2 crop"]["survivor_document_id"] == "2 original"
    reader = ParquetReader(str(source), text_field=None)
    stages = [reader, AsImages(), stage, ParquetWriter(str(tmp_path / "out"))]
    notes = "\n".join(explain(stages, "2 half", "image_id").stages[-1].notes)
    assert "this image: PNG, 120 x 90 pixels" in notes and "survivor: PNG, 240 x 180 pixels" in notes
