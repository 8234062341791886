"""The input of image models is that of the image processors of transformers on Pillow."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.vision.checkpoints import CLIP_CONFIG, DINO_CONFIG, SIGLIP_CONFIG, picture, preprocessor, processor

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.vision.preprocessing import Preprocessing, centre, of_config, preprocessing_of

DEFAULT = Preprocessing(32, crop=(32, 32))
SIZES = [(40, 60), (60, 40), (33, 32), (32, 32), (17, 90), (90, 17), (5, 5), (31, 200), (333, 97)]


@pytest.fixture
def draw() -> random.Random:
    seed = random.randrange(2**31)
    print("seed", seed)
    return random.Random(seed)


@pytest.mark.parametrize(
    "config",
    [
        CLIP_CONFIG,
        SIGLIP_CONFIG,
        DINO_CONFIG,
        dict(CLIP_CONFIG, resample=2, size={"shortest_edge": 37}, crop_size={"height": 31, "width": 40}),
        dict(CLIP_CONFIG, size={"shortest_edge": 20}),  # smaller than the crop, so black edges
        dict(CLIP_CONFIG, do_resize=False),
        dict(SIGLIP_CONFIG, size={"height": 30, "width": 44}, resample=1),
        dict(CLIP_CONFIG, do_normalize=False),
        dict(CLIP_CONFIG, do_rescale=False, image_mean=[127.0] * 3, image_std=[128.0] * 3),
    ],
)
def test_pixels_are_those_of_transformers(config: dict[str, Any], draw: random.Random) -> None:
    import torch
    from PIL import Image

    from gristmill.models.vision.vit import Normalize

    ours, theirs = of_config(config, DEFAULT), processor(config)
    for height, width in [*SIZES, (draw.randint(1, 300), draw.randint(1, 300))]:
        if max(height, width) > 8 * min(height, width):
            continue
        pixels = picture(draw, height, width)

        found = ours.pixels(pixels)
        resized = np.asarray(
            theirs(images=Image.fromarray(pixels), do_normalize=False, do_rescale=False)["pixel_values"][0]
        )
        assert found.dtype == np.uint8
        assert np.array_equal(found, resized.transpose(1, 2, 0).astype(np.uint8)), (height, width)  # every number

        normalized = Normalize(ours)(torch.from_numpy(found.copy())).numpy()
        expected = np.asarray(theirs(images=Image.fromarray(pixels))["pixel_values"][0]).transpose(1, 2, 0)
        assert np.abs(normalized - expected).max() < 1e-6 * max(1.0, np.abs(expected).max())


def test_long_images_need_little_memory_and_are_as_if_resized_whole(draw: random.Random) -> None:
    from PIL import Image

    pixels = picture(draw, 20, 3000)
    made = DEFAULT.pixels(pixels)
    whole = np.asarray(Image.fromarray(pixels).resize((int(32 * 3000 / 20), 32), Image.Resampling.BICUBIC))
    expected = centre(whole, (32, 32))
    assert np.abs(made.astype(int) - expected.astype(int)).max() <= 1

    thin = np.zeros((1, 60_000, 3), dtype=np.uint8)
    assert DEFAULT.pixels(thin).shape == (32, 32, 3)  # the whole would have 61 million pixels
    assert DEFAULT.pixels(thin.transpose(1, 0, 2)).shape == (32, 32, 3)


def test_sizes_of_older_configurations() -> None:
    assert of_config({"size": 48, "crop_size": 40}, DEFAULT) == Preprocessing(48, crop=(40, 40))
    square = Preprocessing(None, (32, 32))
    assert of_config({"size": 48}, square) == Preprocessing(None, (48, 48))


def test_the_configuration_of_a_processor_is_found(tmp_path: Path) -> None:
    (tmp_path / "processor_config.json").write_text('{"image_processor": {"size": {"shortest_edge": 50}}}')
    assert preprocessing_of(Checkpoint(str(tmp_path)), DEFAULT).short_side == 50
    preprocessor(tmp_path, size={"shortest_edge": 60})
    assert preprocessing_of(Checkpoint(str(tmp_path)), DEFAULT).short_side == 60


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"size": {"longest_edge": 100}}, "longest_edge"),
        ({"size": "large"}, "size is 'large'"),
        ({"size": {"shortest_edge": -1}}, "-1 pixels"),
        ({"crop_size": {"height": 3}}, "crop_size"),
        ({"do_center_crop": False}, "no fixed size"),
        ({"resample": 77}, "resample 77"),
        ({"do_pad": True}, "do_pad"),
        ({"image_mean": [1.0]}, "image_mean"),
        ({"image_std": [1.0, 0.0, 1.0]}, "image_std has a 0"),
        ({"image_std": None}, "NoneType"),
    ],
)
def test_configurations_that_cannot_be_used_are_errors(config: dict[str, Any], reason: str, tmp_path: Path) -> None:
    preprocessor(tmp_path, **config)
    with pytest.raises(ModelError, match=reason):
        preprocessing_of(Checkpoint(str(tmp_path)), DEFAULT)
