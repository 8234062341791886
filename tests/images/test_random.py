"""Damaged images of every format, drawn at random: pixels or `BadImage`, and never anything else."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gristmill.images import BadImage, jpeg
from gristmill.images.decode import decode, read
from tests.images.made import samples

ROUNDS = 150


def damaged(data: bytes, draw: random.Random) -> bytes:
    kind = draw.random()
    if kind < 0.35:
        return data[: draw.randrange(len(data))]
    changed = bytearray(data)
    if kind < 0.9:
        within = draw.choice([len(data), min(len(data), 100), min(len(data), 1000)])
        for _ in range(draw.choice([1, 1, 2, 5, 50])):
            changed[draw.randrange(within)] = draw.randrange(256)
    else:
        start, stop = sorted(draw.randrange(len(data)) for _ in range(2))
        del changed[start:stop]
    return bytes(changed)


def outcome(data: bytes | memoryview, short_side: int | None) -> tuple[str, np.ndarray | None]:
    try:
        header, pixels = read(data, short_side)
    except BadImage as error:
        assert str(error) and len(str(error)) < 60
        return str(error), None
    assert (pixels.dtype, pixels.ndim, pixels.shape[2]) == (np.uint8, 3, 3)
    if short_side is None:
        assert pixels.shape[:2] == (header.height, header.width)
    return "read", pixels


@pytest.mark.parametrize("name", samples())
def test_any_damage_gives_pixels_or_a_bad_image(name):
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # shown if the test fails
    draw = random.Random(seed)
    found = set()
    for _ in range(ROUNDS):
        data = damaged(samples()[name], draw)
        found.add(outcome(draw.choice([data, memoryview(data)]), draw.choice([None, 64, 256]))[0])
    assert len(found) > 1


@pytest.mark.parametrize("name", [name for name in samples() if name.startswith("jpeg") and "2000" not in name])
def test_a_damaged_jpeg_has_the_pixels_of_pillow_or_is_truncated(name, monkeypatch):
    pytest.importorskip("simplejpeg")
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(ROUNDS):
        data, short_side = damaged(samples()[name], draw), draw.choice([None, 64, 256])
        verdict, pixels = outcome(data, short_side)
        with monkeypatch.context() as patch:
            patch.setattr(jpeg, "decoder", lambda: None)
            try:
                plain: np.ndarray | None = decode(data, short_side)
                expected = "read"
            except BadImage as error:
                plain, expected = None, str(error)
        if (verdict, expected) != ("truncated", "read"):  # missing data before an end marker: Pillow makes it grey
            assert verdict == expected
            assert pixels is None or np.array_equal(pixels, plain)
