"""Small networks that score the embedding of an image: aesthetics, and what is not safe for work. NumPy alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from gristmill.errors import ModelError
from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.vision.architectures import KNOWN_SPACES
from gristmill.models.weights import SAFE, Shape, safe_shapes

SUFFIX = ".safetensors"
ALL_HEADS = (
    "one dense layer (weight, bias), dense layers without activations (layers.N), or dense.N with mean and variance"
)
_BY_WIDTH = {768: "ViT-L/14", 512: "ViT-B/32"}
"""The model whose embeddings a published head reads, by the numbers in them."""
_NUMBERED = re.compile(r"(layers|dense)\.(\d+)\.(weight|bias)")

HeadKind = Literal["linear", "layers", "dense"]


@dataclass(frozen=True)
class ScoreHead:
    """A network from an embedding of length one to a score.

    ``name`` is a file (.safetensors), a folder with model.safetensors, ``package:module/folder``, or a repository on
    the Hugging Face hub. Its layout tells what it is:

    - ``weight`` and ``bias``: one dense layer,
    - ``layers.N.weight`` and ``layers.N.bias``: dense layers one after another, without activations between them,
    - ``dense.N.weight`` and so on, ``mean``, ``variance``: standardized first, then dense layers with ReLU after each
      but the last, which has a sigmoid.

    Scores are computed in 64 bits, so they do not depend on the embeddings that are scored together.
    """

    name: str
    cache_dir: str | None = None

    @property
    def title(self) -> str:
        return f"head {self.name!r}"

    def fetch(self) -> None:
        """Download it if it is a repository that is not on this machine yet."""
        self._path()

    def check(self) -> int:
        """Return the width of the embeddings that it reads, or raise a `ModelError` if it cannot be used."""
        shapes = safe_shapes(self._path(), self.title)
        names, kind = self._layers(shapes)
        width: int | None = None
        for name in names:
            weight, bias = shapes[f"{name}weight"], shapes.get(f"{name}bias")
            if len(weight) != 2 or bias != (weight[0],) or (width is not None and weight[1] != width):
                raise self._unusable(f"{name}weight is of the shape {list(weight)}")
            width = weight[0]
        if width != 1:
            raise self._unusable(f"its last layer makes {width} numbers, not one score")
        inputs = shapes[f"{names[0]}weight"][1]
        if kind == "dense" and not shapes["mean"] == shapes["variance"] == (inputs,):
            raise self._unusable("mean or variance is of another size than its first layer")
        return inputs

    def reads(self) -> str | None:
        """Return the name of the CLIP model whose embeddings it reads, as their width tells; None if it does not."""
        return _BY_WIDTH.get(self.check())

    def network(self) -> Network:
        """Load it."""
        self.check()
        return _network(self, str(self._path()))

    def _path(self) -> Path:
        if self.name.endswith(SUFFIX):
            path = Path(self.name).expanduser()
            if not path.is_file():
                raise ModelError(f"{self.title}: there is no file {str(path)!r}.")
            return path
        checkpoint = Checkpoint(self.name, self.cache_dir)
        found = checkpoint.file(SAFE)
        if found is None:
            raise ModelError(f"{self.title}: there is no {SAFE}.\n    name a file that ends in {SUFFIX}.")
        return found

    def _layers(self, shapes: Mapping[str, Shape]) -> tuple[Sequence[str], HeadKind]:
        """What the names of each layer begin with, in order."""
        if set(shapes) == {"weight", "bias"}:
            return [""], "linear"
        found: dict[str, set[int]] = {}
        extra = {name for name in shapes if name in ("mean", "variance")}
        for name in shapes.keys() - extra:
            match = _NUMBERED.fullmatch(name)
            if match is None:
                raise self._unusable(f"its weight {name} is not known")
            found.setdefault(match[1], set()).add(int(match[2]))
        if len(found) == 1 and (one := next(iter(found))) and bool(extra) == (one == "dense") and len(extra) in (0, 2):
            names = [f"{one}.{number}." for number in sorted(found[one])]
            if all(f"{name}weight" in shapes for name in names):
                return names, "dense" if one == "dense" else "layers"
        raise self._unusable("its weights are not those of one of the known layouts")

    def _unusable(self, reason: str) -> ModelError:
        return ModelError(f"{self.title} cannot be used: {reason}.\n    known: {ALL_HEADS}.")


class Network:
    """A loaded head."""

    def __init__(self, layers: Sequence[tuple[Array, Array]], standard: tuple[Array, Array] | None) -> None:
        """``standard``: the mean and the standard deviation by which embeddings are standardized."""
        self._layers = layers
        self._standard = standard

    @property
    def width(self) -> int:
        """Numbers in an embedding."""
        return int(self._layers[0][0].shape[1])

    def scores(self, embeddings: Array) -> Array:
        """One score (float32) for each embedding, which is scaled to length one first."""
        x = embeddings.astype(np.float64)
        x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        if self._standard is None:
            for weight, bias in self._layers:
                x = x @ weight.T + bias
            return x[:, 0].astype(np.float32)
        x = (x - self._standard[0]) / self._standard[1]
        for weight, bias in self._layers[:-1]:
            x = np.maximum(x @ weight.T + bias, 0.0)
        weight, bias = self._layers[-1]
        return _sigmoid(x @ weight.T + bias)[:, 0].astype(np.float32)


def _sigmoid(x: Array) -> Array:
    shares: Array = np.exp(-np.logaddexp(0.0, -x))
    return shares


@lru_cache(maxsize=8)
def _network(head: ScoreHead, path: str) -> Network:
    from safetensors import safe_open

    shapes = safe_shapes(Path(path), head.title)
    names, kind = head._layers(shapes)
    with safe_open(path, framework="np") as opened:
        file: Any = opened
        read = {name: file.get_tensor(name).astype(np.float64) for name in shapes}
    if not all(np.isfinite(one).all() for one in read.values()):
        raise ModelError(f"{head.title} has weights that are not finite.\n    get it again.")
    layers = [(read[f"{name}weight"], read[f"{name}bias"]) for name in names]
    if kind == "layers":  # without activations, they are one layer
        weight, bias = layers[0]
        for following, shift in layers[1:]:
            weight, bias = following @ weight, following @ bias + shift
        layers = [(weight, bias)]
    if kind != "dense":
        return Network(layers, None)
    if not (read["variance"] > 0).all():
        raise ModelError(f"{head.title} has a variance that is not above 0.\n    get it again.")
    return Network(layers, (read["mean"], np.sqrt(read["variance"])))


def space_of(name: str) -> str | None:
    """Return the kind of model that a name such as "ViT-L/14" stands for; None for any other name."""
    return KNOWN_SPACES.get(name)
