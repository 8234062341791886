"""The ends of models: classification as each architecture does it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.model import Head, Reads
from gristmill.models.pooling import mean_of

if TYPE_CHECKING:
    import torch

    from gristmill.models.weights import Weights


class HeadSpec(ABC):
    """Which head a model gets: a plain value, which stages hold and send to their workers."""

    @abstractmethod
    def check(self, checkpoint: Checkpoint) -> None:
        """Raise a `ModelError` if the checkpoint cannot have this head. Called at planning; no weights are read."""

    @abstractmethod
    def load(self, checkpoint: Checkpoint, weights: Weights) -> Head:
        """Make the head, on the CPU."""

    def fetch(self) -> None:  # noqa: B027  # most heads are in the checkpoint of the layers
        """Download files of its own that are not on this machine yet."""


def require(checkpoint: Checkpoint, layers: Iterable[str], wanted: str) -> None:
    """Raise a `ModelError` if one of these dense layers is known to be missing."""
    names = checkpoint.weight_names()
    lost = [name for name in layers if names is not None and f"{name}.weight" not in names]
    if lost:
        raise ModelError(
            f"{checkpoint.title} does not have the classification head of its kind: there is no weight "
            f"{lost[0]}.weight.\n    name {wanted}."
        )


def require_labels(checkpoint: Checkpoint, layer: str) -> None:
    """Raise a `ModelError` if the last dense layer is known to have more or fewer outputs than there are labels."""
    shapes, labels = checkpoint.weight_shapes(), checkpoint.labels
    if shapes is not None and labels and shapes[f"{layer}.weight"][0] != len(labels):
        raise ModelError(
            f"{checkpoint.title} has {len(labels):,} labels in config.json, but makes "
            f"{shapes[f'{layer}.weight'][0]:,} numbers of a text.\n    get the config.json that belongs to its weights."
        )


class Layers(Head):
    """A head of dense layers, whose weights are held by name. Subclasses compute one row for each state."""

    def __init__(self, weights: Mapping[str, torch.Tensor], width: int, reads: Reads) -> None:
        self.weights = dict(weights)
        self.width = width
        self.reads = reads

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        self.weights = {name: tensor.to(device, dtype) for name, tensor in self.weights.items()}
        return self

    def rows(self, hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        one = next(iter(self.weights.values()))
        return self.scores(self.states(hidden, offsets).to(one.dtype)).float()

    def states(self, hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """One state for each text."""
        return hidden if self.reads != "all" else mean_of(hidden, offsets)

    @abstractmethod
    def scores(self, states: torch.Tensor) -> torch.Tensor:
        """The numbers of each text."""

    def linear(self, states: torch.Tensor, name: str) -> torch.Tensor:
        """Apply the dense layer of this name."""
        from torch.nn.functional import linear

        return linear(states, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))


class DenseLayers(Layers):
    """Dense layers as in a sequence-classification model of transformers: (layer, activation after it)."""

    def __init__(self, weights: Mapping[str, torch.Tensor], reads: Reads, layers: list[tuple[str, str]]) -> None:
        super().__init__(weights, weights[f"{layers[-1][0]}.weight"].shape[0], reads)
        self._layers = layers

    def scores(self, states: torch.Tensor) -> torch.Tensor:
        for name, activation in self._layers:
            states = activated(self.linear(states, name), activation)
            if name == "head.dense":
                states = self._normed(states, "head.norm")
        return states

    def _normed(self, states: torch.Tensor, name: str) -> torch.Tensor:
        from torch.nn.functional import layer_norm

        scale = self.weights[f"{name}.weight"]
        return layer_norm(states, scale.shape, scale, self.weights.get(f"{name}.bias"), 1e-5)


@dataclass(frozen=True)
class SequenceClassification(HeadSpec):
    """The head of a ``...ForSequenceClassification`` checkpoint: one number for each label, before softmax."""

    def check(self, checkpoint: Checkpoint) -> None:
        layers = [name for name, _ in self._layers(checkpoint)]
        require(checkpoint, layers, "a checkpoint that was trained as ...ForSequenceClassification")
        require_labels(checkpoint, layers[-1])

    def load(self, checkpoint: Checkpoint, weights: Weights) -> Head:
        layers = self._layers(checkpoint)
        names = {f"{name}.{part}" for name, _ in layers for part in ("weight", "bias")}
        names |= {"head.norm.weight", "head.norm.bias"}
        return DenseLayers(weights.under("", names.__contains__), self._reads(checkpoint), layers)

    def _reads(self, checkpoint: Checkpoint) -> Reads:
        if checkpoint.architecture.causal:
            return "last"
        return "all" if checkpoint.config.get("classifier_pooling") == "mean" else "first"

    def _layers(self, checkpoint: Checkpoint) -> list[tuple[str, str]]:
        """The dense layers, each with the activation after it."""
        config, architecture = checkpoint.config, checkpoint.architecture
        match architecture.head:
            case "pooled":
                return [(f"{architecture.prefix}pooler.dense", "tanh"), ("classifier", "")]
            case "projected":
                return [("classifier.dense", "tanh"), ("classifier.out_proj", "")]
            case "projected_gelu":
                return [("classifier.dense", "gelu"), ("classifier.out_proj", "")]
            case "context":
                return [("pooler.dense", config.get("pooler_hidden_act", "gelu")), ("classifier", "")]
            case "distilled":
                return [("pre_classifier", "relu"), ("classifier", "")]
            case "prediction":
                return [("head.dense", config.get("classifier_activation", "gelu")), ("classifier", "")]
        return [("score", "")]


def activated(states: torch.Tensor, name: str) -> torch.Tensor:
    """Apply the activation of this name; "" is none."""
    import torch
    from torch.nn import functional

    activations: dict[str, Any] = {
        "": lambda x: x,
        "gelu": functional.gelu,
        "relu": torch.relu,
        "silu": functional.silu,
        "tanh": torch.tanh,
    }
    if name not in activations:
        raise ModelError(
            f"the activation {name!r} of a classification head is not supported: {', '.join(activations)}."
        )
    return activations[name](states)
