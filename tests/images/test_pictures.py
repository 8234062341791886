"""The pictures of a batch: decoded once, shared between stages, without those that cannot be read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from gristmill.images import pictures as module
from gristmill.images.decode import read_header
from gristmill.images.pictures import Pictures, encoded
from gristmill.stages.text.filters.columns import set_column
from gristmill.tasks import ImageBatch
from gristmill.tasks.document import ID
from tests.images.made import busy, picture, samples
from tests.images.made import encoded as to_bytes

GOOD = to_bytes(picture(), "PNG")


def batch(*images: bytes | None, kind: pa.DataType | None = None) -> ImageBatch:
    ids = [f"shard.tar#{512 * number}" for number in range(len(images))]
    return ImageBatch(data=pa.table({"image": pa.array(images, kind or pa.large_binary()), ID: ids}))


def bad(made: ImageBatch) -> list[tuple[str, int, str]]:
    return [(one.file, one.position, one.reason) for one in made.account.bad]


class Count:
    """Counts the calls of a function."""

    def __init__(self, function) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, *args, **options):
        self.calls += 1
        return self.function(*args, **options)


@pytest.fixture
def calls(monkeypatch):
    counts = {name: Count(getattr(module, name)) for name in ("read", "read_header", "decode")}
    for name, count in counts.items():
        monkeypatch.setattr(module, name, count)
    return lambda: {name: count.calls for name, count in counts.items() if count.calls}


@pytest.mark.parametrize("pixels", [True, False])
def test_images_that_cannot_be_read_are_bad_records(pixels):
    given = batch(GOOD, b"", None, b"nonsense", GOOD)
    kept, pictures = Pictures.of(given, pixels=pixels)
    assert (kept.num_items, len(pictures)) == (2, 2)
    assert kept.data.column(ID).to_pylist() == ["shard.tar#0", "shard.tar#2048"]
    assert bad(kept) == [
        ("shard.tar", 512, "empty"),
        ("shard.tar", 1024, "no image"),
        ("shard.tar", 1536, "not an image of a known format"),
    ]
    assert not kept.account.dropped


def test_damage_in_the_pixels_is_found_when_they_are_decoded():
    broken = samples()["jpeg"][:2000]
    kept, pictures = Pictures.of(batch(GOOD, broken, GOOD), pixels=False)
    assert (len(pictures), bad(kept)) == (3, [])
    with pytest.raises(AssertionError, match="decodes nothing"):
        _ = pictures.pixels
    kept, pictures = Pictures.of(kept)
    assert (len(pictures), kept.num_items, bad(kept)) == (2, 2, [("shard.tar", 512, "truncated")])
    assert [one.shape for one in pictures.pixels] == [(64, 96, 3)] * 2
    assert Pictures.of(kept)[1] is pictures


def test_each_image_is_opened_once_for_all_stages_of_a_step(calls):
    kept, pictures = Pictures.of(batch(GOOD, GOOD, to_bytes(busy(), "JPEG")))
    again = Pictures.of(Pictures.of(kept, pixels=False)[0])[1]
    assert again is pictures
    fewer = Pictures.of(kept.keep([True, False, True], "by hand"))[1]
    assert [one.shape for one in fewer.pixels] == [(64, 96, 3), (260, 300, 3)]
    assert [one.format for one in fewer.headers] == ["PNG", "JPEG"]
    assert fewer.sizes.tolist() == [len(GOOD), len(to_bytes(busy(), "JPEG"))]
    assert calls() == {"read": 3}


def test_headers_of_a_reader_are_not_read_again(calls):
    given = batch(GOOD, samples()["jpeg"][:2000])
    Pictures.remember(given, [read_header(one) for one in given.data.column("image").to_pylist()])
    kept, pictures = Pictures.of(given, pixels=False)
    assert [one.format for one in pictures.headers] == ["PNG", "JPEG"] and not calls()
    kept, pictures = Pictures.of(kept)
    assert (len(pictures), bad(kept)) == (1, [("shard.tar", 512, "truncated")])
    assert calls() == {"decode": 2}
    with pytest.raises(ValueError, match="1 headers for 2 images"):
        Pictures.remember(batch(GOOD, GOOD), pictures.headers)


def test_pixels_beyond_the_memory_that_is_kept_are_decoded_again(calls, monkeypatch):
    monkeypatch.setattr(module, "KEPT_BYTES", 2 * 96 * 64 * 3)
    _, pictures = Pictures.of(batch(*[GOOD] * 5))
    assert len(pictures.pixels) == 5
    assert all(np.array_equal(one, pictures.pixels[0]) for one in pictures.pixels)
    assert [one.shape for one in pictures.pixels[3:]] == [(64, 96, 3)] * 2
    assert calls() == {"read": 5, "decode": 3 + 2}
    assert pictures._kept <= module.KEPT_BYTES
    assert pictures.select(np.array([False, True, True, True, False])).pixels[2].shape == (64, 96, 3)


def test_a_measure_is_computed_once_for_all_that_ask():
    measure = Count(lambda pixels: float(pixels.shape[1]))
    _, pictures = Pictures.of(batch(GOOD, to_bytes(busy(), "PNG")))
    assert pictures.measured(measure).tolist() == pictures.measured(measure).tolist() == [96.0, 300.0]
    assert pictures.select(np.array([False, True])).measured(measure).tolist() == [300.0]
    assert measure.calls == 2


def test_pictures_of_a_column_that_was_replaced_are_new():
    kept, pictures = Pictures.of(batch(GOOD))
    set_column(kept, "caption", pa.array(["a mill"]))
    assert Pictures.of(kept)[1] is pictures
    set_column(kept, "image", pa.array([to_bytes(busy(), "PNG")], pa.large_binary()))
    assert Pictures.of(kept)[1].headers[0].width == 300


def test_a_smaller_limit_of_pixels_counts_for_pictures_that_are_there():
    kept, _ = Pictures.of(batch(GOOD, to_bytes(busy(), "PNG")))
    kept, pictures = Pictures.of(kept, max_pixels=10_000)
    assert (len(pictures), bad(kept)) == (1, [("shard.tar", 512, "too many pixels")])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_are_not_copied(kind):
    made = batch(GOOD, None, kind=kind)
    views = encoded(made)
    assert (bytes(views[0]), views[1]) == (GOOD, None)


def test_other_columns_are_refused():
    made = ImageBatch(data=pa.table({"image": ["a.jpg"], "nothing": pa.nulls(1)}))
    with pytest.raises(TypeError, match=r"column 'image' holds (large_)?string, not encoded images"):
        encoded(made)
    assert encoded(made, "nothing") == [None]
    with pytest.raises(KeyError, match="there is no column 'picture'"):
        encoded(made, "picture")
