"""What `ImageWriter` writes, `ImageReader` reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("PIL")

from tests.stages.image.io.pictures import picture

from gristmill import Pipeline
from gristmill.image import ImageReader, ImageWriter
from gristmill.stages.text.io import ParquetWriter


def test_shards_give_the_same_images_again(tmp_path: Path) -> None:
    names = ["cats/my cat.png", "dog", "a.b.c"]
    table = pa.table(
        {
            "image": pa.array([picture(n) for n in range(3)], pa.large_binary()),
            "image_id": names,
            "caption": ["a cat\nsits", None, "x"],
            "score": [0.25, None, 1.0],
            "tags": [["x"], [], ["y", "z"]],
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    for source, target in (("in.parquet", "one"), ("one", "two"), ("two", "three")):
        stages = [ImageReader(str(tmp_path / source)), ImageWriter(str(tmp_path / target))]
        result = Pipeline("p", stages=stages).run()
        assert result.ledger is not None and not result.ledger.problems
    Pipeline("p", stages=[ImageReader(str(tmp_path / "three")), ParquetWriter(str(tmp_path / "out"))]).run()
    found = pq.read_table(next((tmp_path / "out").glob("*.parquet")))
    assert found.select(table.column_names).to_pylist() == table.to_pylist()
    assert found.num_columns == table.num_columns
