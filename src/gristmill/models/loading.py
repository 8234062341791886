"""Models from checkpoints."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from gristmill.errors import ModelError
from gristmill.models.adapter import adapted, check_adapter
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.heads import HeadSpec, SequenceClassification
from gristmill.models.model import Model
from gristmill.models.tokens import TokenLists
from gristmill.models.weights import Weights

if TYPE_CHECKING:
    import torch

Precision = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class ModelSpec:
    """The description of a model to load: a plain value, which stages hold and send to their workers."""

    checkpoint: Checkpoint
    head: HeadSpec = field(default_factory=SequenceClassification)
    adapter: Checkpoint | None = None
    """A LoRA adapter, whose changes are added to the weights."""
    prefix: tuple[int, ...] = ()
    """Tokens that all texts begin with. Their keys and values are computed once; the tokens of texts are the rest."""
    precision: Precision = "auto"
    """Of the matrix products; "auto" is the fastest that keeps scores within the tolerance. See `dtype_of` for CPUs."""

    def check(self) -> None:
        """Raise a `ModelError` if it cannot be loaded, as far as that is known without reading weights."""
        self.checkpoint.check()
        check_layers(self.checkpoint)
        self.head.check(self.checkpoint)
        if self.adapter is not None:
            check_adapter(self.adapter, self.checkpoint)

    def fetch(self) -> None:
        """Download what is not on this machine yet."""
        self.checkpoint.fetch()
        self.head.fetch()
        if self.adapter is not None:
            self.adapter.fetch()


@dataclass(frozen=True)
class TrunkSource:
    """The parts from which a trunk is made."""

    title: str
    config: Mapping[str, Any]
    """The configuration, as in config.json of a base model."""
    weights: Weights
    prefix: str
    """Before the names of the trunk's weights. The rest of a name is that in the ``AutoModel`` of transformers."""
    first_tokens: TokenLists | None = None
    """One list of tokens that all texts begin with, and that is not among the tokens of the texts."""

    @property
    def kind(self) -> str:
        """The ``model_type``."""
        return str(self.config["model_type"])

    def tensors(self, dtype: torch.dtype) -> Tensors:
        """Read the weights of the trunk, on the CPU, by their names without the prefix.

        Matrices are converted to ``dtype`` one by one, so that large models need no more memory than they must.
        """
        tensors = Tensors(self.title)
        for name, tensor in self.weights.read([name for name in self.weights.names if name.startswith(self.prefix)]):
            tensors[name[len(self.prefix) :]] = tensor.to(dtype) if tensor.ndim > 1 else tensor
        return tensors


class Tensors(dict[str, "torch.Tensor"]):
    """Weights by name. To ask for one that is not there is a `ModelError`."""

    def __init__(self, title: str) -> None:
        self._title = title

    def __missing__(self, name: str) -> torch.Tensor:
        raise ModelError(
            f"{self._title} lacks weights of its layers, {name} among them.\n    get the complete checkpoint."
        )


def load(spec: ModelSpec, device: torch.device | str = "cpu") -> Model:
    """Load a model. Its files must be on this machine (`ModelSpec.fetch`)."""
    _require_torch(spec.checkpoint)
    import torch

    from gristmill.models.trunks.choice import make_trunk

    place = torch.device(device)
    weights = spec.checkpoint.weights()
    if spec.adapter is not None:
        weights = adapted(weights, spec.adapter)
    source = trunk_source(spec.checkpoint, weights)
    if spec.prefix:
        source = replace(source, first_tokens=TokenLists.from_lists([spec.prefix]))
    dtype = dtype_of(spec.precision, place, source.kind)
    head = spec.head.load(spec.checkpoint, weights).to(place, torch.float32)
    model = Model(make_trunk(source, place, dtype), head)
    _try(model, spec.checkpoint)
    return model


def _try(model: Model, checkpoint: Checkpoint) -> None:
    """Compute a text of one token, so that a model that cannot work is found before there is work for it."""
    import torch

    try:
        row = model.launch(TokenLists.from_lists([[0]])).cpu()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # of a product of matrices that do not fit each other
        raise ModelError(
            f"{checkpoint.title} cannot be used: its weights do not fit its config.json ({str(error).splitlines()[0]})."
            "\n    get the complete checkpoint."
        ) from None
    if not bool(torch.isfinite(row).all()):
        raise ModelError(
            f"{checkpoint.title} makes numbers that are not finite: its weights are damaged.\n"
            "    get the checkpoint again."
        )


LAYER = re.compile(r"\blayers?\.(\d+)\.")
"""In the name of a weight: the number of its layer."""


def check_layers(checkpoint: Checkpoint) -> None:
    """Raise a `ModelError` if its layers are not those of its configuration, as far as its weights are here."""
    architecture, config = checkpoint.architecture, checkpoint.trunk_config
    shapes = checkpoint.weight_shapes()
    if shapes is None:
        return
    prefix = trunk_prefix(checkpoint, shapes)
    rows, width = shapes[prefix + architecture.embedding]
    hidden = config.get("embedding_size") or config.get("hidden_size") or config.get("dim")
    layers = config.get("num_hidden_layers", config.get("n_layers"))
    found = {int(number) for name in shapes if name.startswith(prefix) for number in LAYER.findall(name[len(prefix) :])}
    for what, stated, there in (
        ("vocab_size", config.get("vocab_size"), rows),
        ("hidden_size", hidden, width),
        ("num_hidden_layers", layers, max(found, default=-1) + 1),
    ):
        if not isinstance(stated, int):
            raise ModelError(
                f"{checkpoint.title}: {what} in config.json must be a whole number, not {stated!r}.\n"
                "    get the checkpoint again."
            )
        if there < stated or (there > stated and what != "num_hidden_layers"):
            raise ModelError(
                f"{checkpoint.title}: its weights are not those of its config.json, where {what} is {stated:,} instead "
                f"of {there:,}.\n    get the complete checkpoint, with the config.json that belongs to it."
            )


def trunk_source(checkpoint: Checkpoint, weights: Weights) -> TrunkSource:
    """Find the weights of the trunk among those of a checkpoint."""
    return TrunkSource(checkpoint.title, checkpoint.trunk_config, weights, trunk_prefix(checkpoint, weights.names))


def trunk_prefix(checkpoint: Checkpoint, names: Container[str]) -> str:
    """Return what the names of the trunk's weights begin with, or raise a `ModelError` if they are not there."""
    architecture = checkpoint.architecture
    for prefix in (architecture.prefix, "model.", "backbone.", ""):
        if prefix + architecture.embedding in names:
            return prefix
    raise ModelError(
        f"{checkpoint.title} does not have the weights of a {checkpoint.trunk_config['model_type']!r} model: "
        f"{architecture.embedding} is not among them.\n    get the complete checkpoint."
    )


def dtype_of(precision: Precision, device: torch.device, kind: str) -> torch.dtype:
    """Return the type in which a trunk computes.

    CPUs compute in float32, unless "bfloat16" is asked for and the CPU has instructions for it (AVX-512 BF16 or AMX).
    """
    import torch

    if device.type == "cpu":
        from gristmill.models.trunks.cpu_linear import has_bfloat16

        return torch.bfloat16 if precision == "bfloat16" and has_bfloat16() else torch.float32
    if precision == "auto":
        return torch.bfloat16 if kind in ("llama", "mistral", "qwen2", "qwen3", "gemma") else torch.float16
    types = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return types[precision]


def _require_torch(checkpoint: Checkpoint) -> None:
    try:
        import torch  # noqa: F401  # only whether it is installed
    except ImportError:
        raise ModelError(f"{checkpoint.title} needs the package torch.\n    pip install 'gristmill[models]'") from None
