"""LoRA adapters, added to the weights that they change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.models.checkpoint import ADAPTER_CONFIG, Checkpoint
from gristmill.models.weights import Weights

if TYPE_CHECKING:
    import torch

WRAPPER = "base_model.model."
"""The prefix that adapters put before the names of the weights that they change."""
DOWN, UP = ".lora_A.weight", ".lora_B.weight"


class AdaptedWeights(Weights):
    """Weights with the changes of an adapter. Changed ones are float32."""

    def __init__(self, base: Weights, adapter: Weights, scale: Mapping[str, float], is_transposed: bool) -> None:
        super().__init__(base.files, base.old_shapes)
        self._adapter = adapter
        self._scale = scale
        """By the name of the changed weight."""
        self._is_transposed = is_transposed
        self._replaced = {name.removeprefix(WRAPPER) for name in adapter.names} & base.names

    def read(self, names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in super().read(names):
            if name in self._replaced:
                yield name, self._adapter[WRAPPER + name]
            elif name in self._scale:
                yield name, tensor.float() + self._change(name)
            else:
                yield name, tensor

    def _change(self, name: str) -> torch.Tensor:
        layer = WRAPPER + name.removesuffix(".weight")
        change = self._adapter[layer + UP].float() @ self._adapter[layer + DOWN].float() * self._scale[name]
        return change.T if self._is_transposed else change


def adapted(base: Weights, adapter: Checkpoint) -> Weights:
    """Return the weights with the changes of an adapter, whose files are on this machine."""
    config = _config(adapter)
    weights = adapter.weights()
    changed = _changed(adapter, weights.names, base.names)
    scale = {name: _scale(config, name) for name in changed}
    return AdaptedWeights(base, weights, scale, bool(config.get("fan_in_fan_out")))


def check_adapter(adapter: Checkpoint, base: Checkpoint) -> None:
    """Raise a `ModelError` if an adapter cannot be added to a checkpoint, as far as their files are here."""
    adapter.check()
    _config(adapter)
    names, of_base = adapter.weight_names(), base.weight_names()
    if names is not None and of_base is not None:
        _changed(adapter, names, of_base)


def _config(adapter: Checkpoint) -> Mapping[str, Any]:
    config = adapter.json(ADAPTER_CONFIG)
    if config is None:
        raise ModelError(f"{adapter.title} is not an adapter: it has no {ADAPTER_CONFIG}.")
    if config.get("peft_type") != "LORA" or config.get("use_dora"):
        raise ModelError(
            f"{adapter.title} is an adapter of the kind {config.get('peft_type')!r}; only LoRA is supported."
        )
    return config


def _changed(adapter: Checkpoint, names: frozenset[str], of_base: frozenset[str]) -> list[str]:
    """Return the names of the weights that an adapter adds to, or raise a `ModelError`."""
    layers = [name.removesuffix(DOWN) for name in names if name.endswith(DOWN)]
    changed = [f"{layer.removeprefix(WRAPPER)}.weight" for layer in layers]
    known = {layer + end for layer in layers for end in (DOWN, UP)}
    known |= {name for name in names if name.removeprefix(WRAPPER) in of_base}
    odd = sorted({*(names - known), *(set(changed) - of_base)})
    if odd or not known:
        what = f"it has {odd[0]}" if odd else "it changes no weight"
        raise ModelError(
            f"{adapter.title} does not fit the model that it is added to: {what}.\n"
            "    name the base model that it was trained on."
        )
    return changed


def _scale(config: Mapping[str, Any], name: str) -> float:
    layer = name.removesuffix(".weight")
    rank = _of_layer(config.get("rank_pattern"), layer, config["r"])
    alpha = _of_layer(config.get("alpha_pattern"), layer, config["lora_alpha"])
    return float(alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))


def _of_layer(patterns: Mapping[str, float] | None, layer: str, default: float) -> float:
    found = [value for key, value in (patterns or {}).items() if layer == key or layer.endswith(f".{key}")]
    return found[0] if found else default
