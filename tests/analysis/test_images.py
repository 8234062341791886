"""Distributions of images: sizes and formats beside those of the captions."""

from __future__ import annotations

import pyarrow as pa

from gristmill.analysis.stats import holds_shards, statistics_of
from gristmill.image import ImageBatch, ImageWriter
from tests.images.samples import FORMATS, encoded, image_corpus


def test_tables_with_images_have_their_sizes_and_formats(tmp_path):
    found = statistics_of(str(image_corpus(tmp_path / "in", files=1)), text_field="caption").groups[""]
    assert found.documents == 40 and found.numbers["width"].count == 40
    assert {name for name, _ in found.values["format"].most_common(10)} == set(FORMATS)
    assert found.numbers["words"].count == found.numbers["image bytes"].count == 40


def test_shards_are_found_by_name_and_in_folders(tmp_path):
    assert not holds_shards(str(image_corpus(tmp_path / "in", files=1))) and not holds_shards("nowhere")
    table = pa.table({"image": pa.array([encoded(1)], pa.large_binary()), "image_id": ["a"]})
    (shard,) = ImageWriter(tmp_path / "out").process(ImageBatch(table, task_id="0")).data
    assert holds_shards(shard) and holds_shards(str(tmp_path / "out"))
