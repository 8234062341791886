"""The heads of NVIDIA's classifiers, as their checkpoints have them, and the head that reads the next token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.heads import DenseLayers, HeadSpec, Layers, require, require_labels
from gristmill.models.model import Head

if TYPE_CHECKING:
    import torch

    from gristmill.models.weights import Weights

GUARD_LAYERS = ("input_layer", "hidden_layer_0", "hidden_layer_1", "hidden_layer_2")


@dataclass(frozen=True)
class FirstToken(HeadSpec):
    """One dense layer, ``fc``, on the state of the first token: the domain, quality and content-type classifiers."""

    def check(self, checkpoint: Checkpoint) -> None:
        require(checkpoint, ["fc"], "a checkpoint of NVIDIA's classifier")
        if not checkpoint.labels:
            raise ModelError(f"{checkpoint.title} does not name its labels: there is no id2label in config.json.")
        require_labels(checkpoint, "fc")

    def load(self, checkpoint: Checkpoint, weights: Weights) -> Head:
        return DenseLayers(weights.under("", lambda name: name.startswith("fc.")), "first", [("fc", "")])


@dataclass(frozen=True)
class SeveralHeads(HeadSpec):
    """A dense layer for each of ``target_sizes`` on the mean of the states: the prompt classifier.

    Rows have the numbers of all heads, one head after the other.
    """

    def check(self, checkpoint: Checkpoint) -> None:
        sizes = target_sizes(checkpoint)
        require(checkpoint, [f"head_{k}.fc" for k in range(len(sizes))], "a checkpoint of NVIDIA's prompt classifier")

    def load(self, checkpoint: Checkpoint, weights: Weights) -> Head:
        import torch

        count = len(target_sizes(checkpoint))
        joined = {
            f"fc.{part}": torch.cat([weights[f"head_{k}.fc.{part}"] for k in range(count)])
            for part in ("weight", "bias")
        }
        return DenseLayers(joined, "all", [("fc", "")])


def target_sizes(checkpoint: Checkpoint) -> Mapping[str, int]:
    """Return the number of classes of each head, in their order."""
    sizes = checkpoint.config.get("target_sizes")
    if not isinstance(sizes, dict) or not sizes:
        raise ModelError(
            f"{checkpoint.title} has no target_sizes in config.json: it is not NVIDIA's prompt classifier.\n"
            "    name a checkpoint of nvidia/prompt-task-and-complexity-classifier."
        )
    return {str(name): int(size) for name, size in sizes.items()}


class _GuardNet(Layers):
    def scores(self, states: torch.Tensor) -> torch.Tensor:
        import torch

        states = torch.nn.functional.normalize(states, dim=-1)
        for name in GUARD_LAYERS[:-1]:
            states = torch.relu(self.linear(states, name))
        return torch.sigmoid(self.linear(states, GUARD_LAYERS[-1]))


@dataclass(frozen=True)
class GuardNet(HeadSpec):
    """The network of Instruction Data Guard, in a checkpoint of its own, on the state of the last token."""

    own: Checkpoint

    def check(self, checkpoint: Checkpoint) -> None:
        self.own.check()
        require(self.own, GUARD_LAYERS, "a checkpoint of nvidia/instruction-data-guard")

    def load(self, checkpoint: Checkpoint, weights: Weights) -> Head:
        found = self.own.weights().under("")
        size = found["input_layer.weight"].shape[1]
        if size != checkpoint.trunk_config["hidden_size"]:
            raise ModelError(f"{self.own.title} takes states of {size} numbers: it was trained on another model.")
        return _GuardNet(found, 1, "last")

    def fetch(self) -> None:
        self.own.fetch()


class _NextToken(Layers):
    def __init__(self, weights: Mapping[str, torch.Tensor], watched: tuple[int, ...]) -> None:
        super().__init__(weights, 1 + len(watched), "last")
        self._watched = list(watched)

    def scores(self, states: torch.Tensor) -> torch.Tensor:
        import torch

        logits = self.linear(states, "lm_head").float()
        best = logits.argmax(dim=1, keepdim=True)
        shares = torch.log_softmax(logits, dim=1)[:, self._watched]
        return torch.cat([best.float(), shares], dim=1)


@dataclass(frozen=True)
class NextToken(HeadSpec):
    """The most probable next token, and the logarithms of the probabilities of the ``watched`` ones."""

    watched: tuple[int, ...] = ()

    def check(self, checkpoint: Checkpoint) -> None:
        names = checkpoint.weight_names()
        if names is not None and self._name(checkpoint, names) is None:
            raise ModelError(f"{checkpoint.title} does not predict tokens: there is no weight lm_head.weight.")

    def load(self, checkpoint: Checkpoint, weights: Weights) -> Head:
        name: Any = self._name(checkpoint, weights.names)
        return _NextToken({"lm_head.weight": weights[name]}, self.watched)

    @staticmethod
    def _name(checkpoint: Checkpoint, names: frozenset[str]) -> str | None:
        tied = "model.embed_tokens.weight" if checkpoint.config.get("tie_word_embeddings") else ""
        return next((name for name in ("lm_head.weight", tied) if name in names), None)
