"""Filters of images in `ScoreFilter`, `Score` and `Filter`: alone, with filters of captions, and with bad images."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from tests.images.made import busy, encoded, picture, samples

from gristmill.images import pictures as pictures_module
from gristmill.stages.image.filters import (
    AspectRatioFilter,
    BlankImageFilter,
    BlurFilter,
    ImageFilter,
    ImageWidthFilter,
    ShortSideFilter,
)
from gristmill.stages.text.filters import Filter, Score, ScoreFilter, WordCountFilter
from gristmill.tasks import ImageBatch
from gristmill.tasks.document import ID

SMALL, LARGE, NARROW = (encoded(busy(*size), "PNG") for size in ((90, 80), (300, 260), (900, 200)))
FLAT = encoded(picture(300, 260).resize((1, 1)).resize((300, 260)), "PNG")
BROKEN = samples()["jpeg"][:3000]  # its header is whole


def batch(**images: bytes | None) -> ImageBatch:
    captions = ["an old mill by the water", None, "mill"] * len(images)
    return ImageBatch(
        data=pa.table(
            {
                "image": pa.array(images.values(), pa.large_binary()),
                "name": list(images),
                "caption": pa.array(captions[: len(images)], pa.large_string()),
                ID: [f"a.tar#{row}" for row in range(len(images))],
            }
        )
    )


def names(made: ImageBatch) -> list[str]:
    return made.data.column("name").to_pylist()


def dropped(made: ImageBatch) -> dict[str, tuple[str, float]]:
    return {
        name: (reason, score)
        for one in made.account.dropped
        for name, reason, score in zip(one.rows.column("name").to_pylist(), one.reasons, one.scores, strict=True)
    }


def bad(made: ImageBatch) -> list[tuple[int, str]]:
    return [(one.position, one.reason) for one in made.account.bad]


def test_images_are_scored_from_the_column_image():
    stage = ScoreFilter([ShortSideFilter(200), AspectRatioFilter(3)], keep_scores=True)
    assert stage.inputs() == (["data"], ["image"])
    kept = stage.process(batch(small=SMALL, large=LARGE, narrow=NARROW))
    assert names(kept) == ["large"]
    assert dropped(kept) == {"small": ("too small", 80.0), "narrow": ("aspect_ratio", 4.5)}
    assert kept.data.column("short_side_score").to_pylist() == [260]
    assert kept.data.column("aspect_ratio_score").to_pylist() == [300 / 260]
    assert type(kept) is ImageBatch


def test_captions_and_images_are_filtered_by_one_stage():
    stage = ScoreFilter([WordCountFilter(2), ShortSideFilter(200)], text_field=["caption", None])
    assert stage.inputs() == (["data"], ["caption", "image"])
    kept = stage.process(batch(a=LARGE, b=LARGE, c=LARGE, d=SMALL))
    assert (names(kept), dropped(kept)) == (
        ["a"],
        {"b": ("too few words", 0.0), "c": ("too few words", 1.0), "d": ("too small", 80.0)},
    )


def test_images_that_cannot_be_read_are_bad_before_any_filter():
    for one in (ShortSideFilter(200), BlurFilter(0)):
        kept = ScoreFilter(one).process(batch(a=LARGE, b=b"nonsense", c=None, d=SMALL))
        assert bad(kept) == [(1, "not an image of a known format"), (2, "no image")]
        assert set(names(kept)) | set(dropped(kept)) == {"a", "d"}
        (scored,) = kept.account.scored
        assert scored.ids.to_pylist() == ["a.tar#0", "a.tar#3"]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_pixels_are_decoded_only_for_images_that_reach_a_filter_of_pixels(order, monkeypatch):
    decoded = []
    for name in ("read", "decode"):
        function = getattr(pictures_module, name)
        monkeypatch.setattr(
            pictures_module, name, lambda data, *rest, f=function: decoded.append(len(data)) or f(data, *rest)
        )
    filters = [ShortSideFilter(200), BlurFilter(5)]
    kept = ScoreFilter([filters[k] for k in order]).process(batch(small=SMALL, large=LARGE, flat=FLAT))
    assert names(kept) == ["large"]
    both = [len(LARGE), len(FLAT)]
    assert decoded == (both if order == [0, 1] else [len(SMALL), *both])


def test_an_image_that_breaks_while_it_is_decoded_is_bad_and_has_no_scores():
    filters = [ShortSideFilter(200), BlurFilter(5), ImageWidthFilter(0, 299)]
    given = batch(small=SMALL, broken=BROKEN, large=LARGE, flat=FLAT, broken_too=BROKEN)
    kept = ScoreFilter(filters, keep_scores=True).process(given)
    assert bad(kept) == [(1, "truncated"), (4, "truncated")]
    assert names(kept) == []
    assert {name: reason for name, (reason, _) in dropped(kept).items()} == {
        "small": "too small",
        "large": "too wide",
        "flat": "blur",
    }
    (scored,) = kept.account.scored
    assert scored.ids.to_pylist() == ["a.tar#0", "a.tar#2", "a.tar#3"]
    assert scored.dropped_by.tolist() == [0, 2, 1]
    assert [(rows.tolist(), len(values)) for rows, values in scored.rules] == [([0, 1, 2], 3), ([1, 2], 2), ([1], 1)]


def test_bad_images_among_kept_ones_leave_and_later_stages_find_the_rest():
    given = batch(broken=BROKEN, large=LARGE, small=SMALL, broken_too=BROKEN, flat=FLAT)
    kept = ScoreFilter([ShortSideFilter(100), BlankImageFilter(1.0)]).process(given)
    assert (names(kept), bad(kept)) == (["large", "flat"], [(0, "truncated"), (3, "truncated")])
    kept.take_account()
    again = ScoreFilter(BlurFilter(5)).process(kept)
    assert (names(again), list(dropped(again)), bad(again)) == (["large"], ["flat"], [])


def test_inverted_filters_decide_on_images_that_can_be_read():
    filters = [ShortSideFilter(200), BlurFilter(5)]
    given = {"small": SMALL, "broken": BROKEN, "large": LARGE, "flat": FLAT}
    kept = ScoreFilter(filters, invert=True).process(batch(**given))
    assert (names(kept), bad(kept)) == (["small", "flat"], [(1, "truncated")])
    assert [one.reasons for one in kept.account.dropped] == [["kept by all of short_side, blur"]]
    kept = ScoreFilter(filters, invert=[True, False]).process(batch(**given))
    assert (names(kept), bad(kept)) == (["small"], [])


def test_scores_are_stored_without_dropping():
    stage = Score([ShortSideFilter(200), BlurFilter()], ["side", "sharpness"])
    kept = stage.process(batch(small=SMALL, broken=BROKEN, flat=FLAT))
    assert (names(kept), bad(kept)) == (["small", "flat"], [(1, "truncated")])
    assert kept.data.column("side").to_pylist() == [80, 260]
    assert kept.data.column("sharpness")[1].as_py() == 0
    kept = Filter(BlurFilter(5), "sharpness").process(kept)
    assert (names(kept), dropped(kept)) == (["small"], {"flat": ("blur", 0.0)})


class Dark(ImageFilter):
    """As a user writes one."""

    def score_pictures(self, pictures):
        return np.array([pixels.mean() for pixels in pictures.pixels])

    def keep_document(self, score):
        return score >= 20


def test_a_filter_of_the_users_own():
    black = encoded(picture().point(lambda level: level // 20), "PNG")
    kept = ScoreFilter(pickle.loads(pickle.dumps(Dark()))).process(batch(large=LARGE, black=black))
    assert (names(kept), dropped(kept)["black"][0]) == (["large"], "dark")


def test_a_filter_without_scores_is_refused():
    class Nothing(ImageFilter):
        def keep_document(self, score):
            return True

    with pytest.raises(TypeError, match="Nothing does not define score_pictures"):
        ScoreFilter(Nothing())


def test_a_wrong_column_is_an_error():
    with pytest.raises(TypeError, match="column 'caption' holds large_string, not encoded images"):
        ScoreFilter(BlurFilter(), text_field="caption").process(batch(a=LARGE))
    with pytest.raises(TypeError, match="column 'image' holds large_binary, not text"):
        ScoreFilter(WordCountFilter(), text_field="image").process(batch(a=LARGE))


def test_an_empty_batch_stays_empty():
    empty = batch(a=LARGE).slice(0, 0)
    assert ScoreFilter([ShortSideFilter(), BlurFilter(), AspectRatioFilter()]).process(empty).num_items == 0
