"""Embedding models: the configuration of sentence-transformers, and the head that it describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gristmill.errors import ModelError
from gristmill.models.architectures import most_tokens
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.heads import HeadSpec, activated
from gristmill.models.model import Head
from gristmill.models.pooling import MODES, Mode, pool, reads_of
from gristmill.models.tokenizer import token_limit
from gristmill.models.weights import SAFE, safe_shapes, weights_in

if TYPE_CHECKING:
    import torch

    from gristmill.models.weights import Weights

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
TRANSFORMER_SETTINGS = tuple(
    f"sentence_{kind}_config.json" for kind in ("bert", "roberta", "distilbert", "camembert", "xlm-roberta")
)
KNOWN_MODULES = ("Transformer", "Pooling", "Dense", "Normalize")
ACTIVATIONS = {"Identity": "", "GELU": "gelu", "ReLU": "relu", "SiLU": "silu", "Tanh": "tanh"}
_OLD_MODES: dict[str, Mode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The modes in older configurations, in the order in which their results are joined."""
_EMBEDDING = "sentence_embedding"


@dataclass(frozen=True, slots=True)
class DenseModule:
    """A dense layer after pooling, with weights of its own in the folder ``path`` of the checkpoint."""

    path: str
    inputs: int
    outputs: int
    has_bias: bool
    activation: str
    is_residual: bool

    def weight_names(self) -> list[str]:
        """The names of its weights."""
        names = ["linear.weight", *(["linear.bias"] if self.has_bias else [])]
        return [*names, "residual.weight"] if self.is_residual and self.inputs != self.outputs else names

    def apply(self, x: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
        from torch.nn.functional import linear

        y = activated(linear(x, weights["linear.weight"], weights.get("linear.bias")), self.activation)
        if not self.is_residual:
            return y
        residual = weights.get("residual.weight")
        return y + (x if residual is None else linear(x, residual))


@dataclass(frozen=True, slots=True)
class NormalizeModule:
    """Scales embeddings to length one."""

    def apply(self, x: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
        from torch.nn.functional import normalize

        return normalize(x, dim=-1)


AfterPooling = DenseModule | NormalizeModule


@dataclass(frozen=True)
class SentenceConfig:
    """The settings of an embedding model besides its layers."""

    modes: tuple[Mode, ...] = ("mean",)
    after: tuple[AfterPooling, ...] = ()
    pools_prompt: bool = True
    """Whether the tokens of a prompt are pooled with those of the text."""
    max_seq_length: int | None = None
    lowercase: bool = False
    """Whether texts are converted to lower case before they are tokenized."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None

    @property
    def normalizes(self) -> bool:
        """Whether embeddings have length one."""
        return bool(self.after) and isinstance(self.after[-1], NormalizeModule)

    def prompt(self, checkpoint: Checkpoint, text: str | None, name: str | None) -> str:
        """Return the prompt: ``text``, or that of this name, or the model's default; "" is none."""
        if text is None and (chosen := self.default_prompt if name is None else name) is not None:
            text = self.prompts.get(chosen)
            if text is None:
                names = ", ".join(map(repr, self.prompts)) or "none"
                raise ModelError(f"{checkpoint.title} has no prompt {chosen!r}. Its prompts: {names}.")
        if text and not self.pools_prompt:
            raise ModelError(
                f"{checkpoint.title} does not pool the tokens of a prompt, which is not supported.\n    set prompt=''."
            )
        return text or ""

    def limit(self, checkpoint: Checkpoint, wanted: int | None) -> int | None:
        """Return how many tokens of a text are read, special ones included; None if nothing limits them."""
        if wanted is not None or self.max_seq_length is None:
            return token_limit(checkpoint, wanted)
        most = most_tokens(checkpoint.trunk_config)
        return self.max_seq_length if most is None else min(most, self.max_seq_length)


def sentence_config(checkpoint: Checkpoint) -> SentenceConfig:
    """Read the configuration; of a checkpoint without one, the mean of the states of its tokens is the embedding.

    A module that is not known, or weights that cannot be read, are a `ModelError`.
    """
    modules = checkpoint.json_list(MODULES)
    if modules is None:
        return SentenceConfig()
    kinds = [_kind(checkpoint, module) for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or "Transformer" in kinds[1:] or "Pooling" in kinds[2:]:
        raise ModelError(
            f"{checkpoint.title} has the modules {', '.join(kinds)} in {MODULES}; supported are a Transformer and "
            "a Pooling, then Dense and Normalize."
        )
    if modules[0].get("path"):
        raise ModelError(
            f"{checkpoint.title} has its layers in the folder {modules[0]['path']!r}, which is not supported.\n"
            "    save it with a newer sentence-transformers, which puts them beside modules.json."
        )
    pooling = _module_json(checkpoint, modules[1])
    if not pooling:
        raise ModelError(
            f"{checkpoint.title} has no {modules[1].get('path')}/config.json, which defines how it pools.\n"
            "    get the complete checkpoint."
        )
    config = replace(
        _with_texts(checkpoint), modes=_modes(checkpoint, pooling), pools_prompt=pooling.get("include_prompt", True)
    )
    after = [
        _dense(checkpoint, module) if kind == "Dense" else _normalize(checkpoint, module)
        for kind, module in zip(kinds[2:], modules[2:], strict=True)
    ]
    _check_sizes(checkpoint, config.modes, after)
    return replace(config, after=tuple(after))


def _kind(checkpoint: Checkpoint, module: Mapping[str, Any]) -> str:
    full = str(module.get("type"))
    package, _, kind = full.rpartition(".")
    if package.partition(".")[0] != "sentence_transformers" or kind not in KNOWN_MODULES:
        raise ModelError(
            f"{checkpoint.title} has the module {full!r} in {MODULES}, which is not supported.\n"
            f"    supported: {', '.join(KNOWN_MODULES)}. use_sentence_transformer=False ignores all but the layers."
        )
    return kind


def _module_json(checkpoint: Checkpoint, module: Mapping[str, Any]) -> dict[str, Any]:
    return checkpoint.json(f"{module.get('path')}/config.json") or {}


def _modes(checkpoint: Checkpoint, config: Mapping[str, Any]) -> tuple[Mode, ...]:
    mode = config.get("pooling_mode")
    if mode is None:
        return tuple(mode for name, mode in _OLD_MODES.items() if config.get(name)) or ("mean",)
    modes: list[Any] = [mode] if isinstance(mode, str) else list(mode)
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown or not modes:
        raise ModelError(
            f"{checkpoint.title} has the pooling mode {unknown}, which is not supported: {', '.join(MODES)}."
        )
    return tuple(modes)


def _check_field(checkpoint: Checkpoint, module: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raise a `ModelError` if a module reads or writes something else than the embedding."""
    for name in ("module_input_name", "module_output_name"):
        if config.get(name) not in (None, _EMBEDDING):
            raise ModelError(
                f"{checkpoint.title}: the module {module['path']!r} has {name} {config[name]!r}; supported is "
                f"{_EMBEDDING!r}."
            )


def _normalize(checkpoint: Checkpoint, module: Mapping[str, Any]) -> NormalizeModule:
    _check_field(checkpoint, module, _module_json(checkpoint, module))
    return NormalizeModule()


def _dense(checkpoint: Checkpoint, module: Mapping[str, Any]) -> DenseModule:
    config = _module_json(checkpoint, module)
    path = str(module["path"])
    _check_field(checkpoint, module, config)
    function = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    package, _, name = function.rpartition(".")
    if package.partition(".")[0] != "torch" or name not in ACTIVATIONS:
        raise ModelError(
            f"{checkpoint.title}: the module {path!r} has the activation {function!r}, which is not supported: "
            f"{', '.join(ACTIVATIONS)}."
        )
    try:
        inputs, outputs = int(config["in_features"]), int(config["out_features"])
    except (KeyError, TypeError, ValueError):
        raise ModelError(
            f"{checkpoint.title}: {path}/config.json does not give in_features and out_features.\n"
            "    get the complete checkpoint."
        ) from None
    is_residual = bool(config.get("use_residual", False))
    dense = DenseModule(path, inputs, outputs, bool(config.get("bias", True)), ACTIVATIONS[name], is_residual)
    folder = checkpoint.cached()
    if folder is not None and (not checkpoint.is_hub or (folder / path / SAFE).exists()):
        _check_weights(checkpoint, folder, dense)
    return dense


def _check_weights(checkpoint: Checkpoint, folder: Path, dense: DenseModule) -> None:
    path = folder / dense.path / SAFE
    if not path.is_file():
        raise ModelError(
            f"{checkpoint.title}: the module {dense.path!r} has no {SAFE}; pickles are not read.\n"
            "    where you trust it, convert it: SentenceTransformer(...).save(folder), and name that folder."
        )
    lost = set(dense.weight_names()) - safe_shapes(path, checkpoint.title).keys()
    if lost:
        raise ModelError(
            f"{checkpoint.title}: {dense.path}/{SAFE} lacks {min(lost)}.\n    get the complete checkpoint."
        )


def _check_sizes(checkpoint: Checkpoint, modes: Sequence[Mode], after: Sequence[AfterPooling]) -> None:
    width = len(modes) * hidden_size(checkpoint)
    for module in after:
        if isinstance(module, DenseModule):
            if module.inputs != width:
                raise ModelError(
                    f"{checkpoint.title}: the module {module.path!r} takes {module.inputs} numbers, but gets {width}.\n"
                    "    get the complete checkpoint."
                )
            width = module.outputs


def _with_texts(checkpoint: Checkpoint) -> SentenceConfig:
    """The part of the configuration that is about texts: their length, case and prompts."""
    found = next((config for name in TRANSFORMER_SETTINGS if (config := checkpoint.json(name))), {})
    task = found.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise ModelError(f"{checkpoint.title} is made for {task!r}; supported is 'feature-extraction'.")
    settings = checkpoint.json(SETTINGS) or {}
    prompts = settings.get("prompts") or {}
    longest = found.get("max_seq_length")
    return SentenceConfig(
        max_seq_length=None if longest is None else int(longest),
        lowercase=bool(found.get("do_lower_case", False)),
        prompts={str(name): str(text or "") for name, text in prompts.items()},
        default_prompt=settings.get("default_prompt_name"),
    )


def hidden_size(checkpoint: Checkpoint) -> int:
    """Return the numbers of a hidden state."""
    config = checkpoint.trunk_config
    return int(config["hidden_size" if "hidden_size" in config else "dim"])


class EmbeddingHead(Head):
    """Pooled states, and what the model's own modules make of them."""

    def __init__(
        self,
        modes: Sequence[Mode],
        states: int,
        after: Sequence[tuple[AfterPooling, dict[str, torch.Tensor]]],
    ) -> None:
        """``states`` is the size of a hidden state. Each module comes with its weights."""
        self.modes = tuple(modes)
        self.reads = reads_of(modes)
        sizes = [module.outputs for module, _ in after if isinstance(module, DenseModule)]
        self.width = [len(modes) * states, *sizes][-1]
        self._after = list(after)

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        self._after = [
            (module, {name: tensor.to(device, dtype) for name, tensor in weights.items()})
            for module, weights in self._after
        ]
        return self

    def rows(self, hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        x = pool(hidden, offsets, self.modes)
        for module, weights in self._after:
            x = module.apply(x, weights)
        return x


@dataclass(frozen=True)
class SentenceEmbedding(HeadSpec):
    """The embedding of a text, as sentence-transformers computes it.

    ``mode`` replaces the model's own pooling. Without ``own_modules`` its configuration is not read: the embedding is
    the pooled state (by default the mean), scaled to length one.
    """

    mode: Mode | None = None
    own_modules: bool = True

    def config(self, checkpoint: Checkpoint) -> SentenceConfig:
        """The configuration in use."""
        found = sentence_config(checkpoint) if self.own_modules else SentenceConfig(after=(NormalizeModule(),))
        if self.mode is None:
            return found
        _check_sizes(checkpoint, [self.mode], found.after)
        return replace(found, modes=(self.mode,))

    def check(self, checkpoint: Checkpoint) -> None:
        _ = checkpoint.architecture
        self.config(checkpoint)

    def load(self, checkpoint: Checkpoint, weights: Weights) -> EmbeddingHead:
        config = self.config(checkpoint)
        after: list[tuple[AfterPooling, dict[str, torch.Tensor]]] = []
        for module in config.after:
            own: dict[str, torch.Tensor] = {}
            if isinstance(module, DenseModule):
                _check_weights(checkpoint, checkpoint.folder(), module)
                own = weights_in(checkpoint.folder() / module.path, checkpoint.title).under("")
            after.append((module, own))
        return EmbeddingHead(config.modes, hidden_size(checkpoint), after)
