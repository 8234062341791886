"""Images whose ids are in a list are removed."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'gristmill[image]'")

from tests.stages.image.deduplication.corpus import copies, ids_in, removed_in, run, write_images

from gristmill.errors import PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages.image.deduplication import (
    ImageDuplicatesRemovalStage,
    ImageExactDeduplication,
    ImagePerceptualDeduplication,
)
from gristmill.stages.text.io import ParquetReader, ParquetWriter


def test_images_in_the_list_are_removed(tmp_path):
    source = write_images(tmp_path / "in", [*copies(1), *copies(2)])
    (tmp_path / "ids").mkdir()
    for n, names in enumerate((["1 grey", "unknown"], ["2 crop", None])):
        pq.write_table(pa.table({"id": names}), tmp_path / "ids" / f"{n}.parquet")
    run(source, tmp_path / "out", ImageDuplicatesRemovalStage(str(tmp_path / "ids")), workers=1)
    assert sorted(ids_in(tmp_path / "out", "excluded")) == ["1 grey", "2 crop"]
    assert ids_in(tmp_path / "out") == [
        name for name, _ in [*copies(1), *copies(2)] if name not in ("1 grey", "2 crop")
    ]


def test_the_records_of_a_deduplication_are_such_a_list(tmp_path):
    source = write_images(tmp_path / "in", copies(3))
    run(source, tmp_path / "once", ImagePerceptualDeduplication(id_field="image_id"))
    stage = ImageDuplicatesRemovalStage(str(tmp_path / "once" / "duplicates"), duplicate_id_field="document_id")
    run(source, tmp_path / "again", stage)
    assert ids_in(tmp_path / "again") == ids_in(tmp_path / "once")
    assert sorted(ids_in(tmp_path / "again", "excluded")) == sorted(removed_in(tmp_path / "once"))


def test_a_file_alone_and_whole_numbers_as_ids(tmp_path):
    source = write_images(tmp_path / "in", copies(4), number=[0, 1, 2, None, 4, 5, 6])
    pq.write_table(pa.table({"n": [2, 5, None]}), tmp_path / "list.parquet")
    stage = ImageDuplicatesRemovalStage(str(tmp_path / "list.parquet"), "n", image_id_field="number")
    run(source, tmp_path / "out", stage)
    assert len(ids_in(tmp_path / "out")) == 5


def test_a_missing_list_or_column_is_an_error(tmp_path):
    source = write_images(tmp_path / "in", copies(1))
    with pytest.raises(PlanError, match="holds no Parquet files"):
        run(source, tmp_path / "out", ImageDuplicatesRemovalStage(str(tmp_path / "nothing")))
    pq.write_table(pa.table({"n": [2, 5]}), tmp_path / "list.parquet")
    with pytest.raises(PlanError, match=r"has no column 'id', which duplicate_id_field names. Columns: n\."):
        run(source, tmp_path / "out", ImageDuplicatesRemovalStage(str(tmp_path / "list.parquet")))


def test_the_stages_work_in_yaml(tmp_path):
    stages = [
        ParquetReader(str(tmp_path / "in"), text_field=None),
        ImageExactDeduplication(level="pixels"),
        ImagePerceptualDeduplication(max_distance=8, crops=False, id_field="image_id"),
        ImageDuplicatesRemovalStage(str(tmp_path / "ids")),
        ParquetWriter(str(tmp_path / "out")),
    ]
    path = tmp_path / "images.yaml"
    text = Pipeline("images", stages=stages).to_yaml()
    assert "max_distance: 8" in text and "level: pixels" in text
    path.write_text(text)
    assert Pipeline.from_yaml(path).to_yaml() == text
