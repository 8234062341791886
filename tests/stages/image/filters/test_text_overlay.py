"""The share of an image that is covered by text, found by a real detector."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageDraw, ImageFont
from tests.images.made import encoded, picture

from gristmill.errors import PlanError
from gristmill.pipeline import Pipeline
from gristmill.stages.image.filters import TextOverlayFilter, text_overlay
from gristmill.stages.text.filters import Score, ScoreFilter
from gristmill.tasks import ImageBatch


def with_text(*lines: str, size: int = 36) -> Image.Image:
    image = picture(500, 375).point(lambda level: 200 + level // 5)
    for number, line in enumerate(lines):
        ImageDraw.Draw(image).text((20, 20 + 2 * size * number), line, "black", ImageFont.load_default(size))
    return image


def test_the_score_is_the_share_of_lines_of_text():
    pytest.importorskip("rapidocr")
    line = "A mill by the river"
    images = [with_text(), with_text(line), with_text(line, "with a wheel of oak", "and a roof of straw"), picture()]
    made = [encoded(image, "JPEG", quality=92) for image in images]
    kept = Score(TextOverlayFilter(), "share").process(ImageBatch(data=pa.table({"image": made})))
    none, one, three, plain = kept.data.column("share").to_pylist()
    box = ImageDraw.Draw(images[1]).textbbox((20, 20), line, font=ImageFont.load_default(36))
    drawn = (box[2] - box[0]) * (box[3] - box[1]) / (500 * 375)
    assert (none, plain) == (0.0, 0.0)
    assert 0.7 * drawn < one < 2 * drawn
    assert three == pytest.approx(3 * one, rel=0.3)


def test_images_with_much_text_are_dropped():
    pytest.importorskip("rapidocr")
    full = with_text(*["Terms and conditions of the mill"] * 5, size=28)
    images = [encoded(image, "PNG") for image in (picture(), full)]
    one = pickle.loads(pickle.dumps(TextOverlayFilter(max_share=0.05)))
    kept = ScoreFilter(one).process(ImageBatch(data=pa.table({"image": images})))
    assert kept.num_items == 1
    assert [part.reasons for part in kept.account.dropped] == [["text_overlay"]]
    assert one.rule() == "text on at most 5% of the area"
    assert np.isfinite(kept.account.scored[0].rules[0][1]).all()


def test_a_missing_package_is_an_error_of_planning(monkeypatch, tmp_path):
    monkeypatch.setattr(text_overlay.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PlanError, match=r"needs the package rapidocr: pip install 'gristmill\[ocr\]'"):
        Pipeline("images", stages=[ScoreFilter(TextOverlayFilter())]).run(initial_tasks=[])
