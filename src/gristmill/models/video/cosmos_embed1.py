"""Cosmos-Embed1: one embedding of a clip, of eight of its frames."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.loading import Precision, Tensors
from gristmill.models.video.cosmos_shape import TEMPORAL_PARAMETER, CosmosConfig, CosmosShape, shape_of, unknown
from gristmill.models.vision.architectures import CLIP_MEAN, CLIP_STD
from gristmill.models.vision.preprocessing import Preprocessing
from gristmill.models.vision.rows import RowModel

if TYPE_CHECKING:
    import torch

VARIANTS = ("224p", "336p", "448p")
"""The published checkpoints, by the height and width of their frames."""
HUB = "nvidia/Cosmos-Embed1-{}"


@dataclass(frozen=True)
class CosmosEmbed1Spec:
    """Which Cosmos-Embed1 to load: a plain value, which stages hold and send to their workers."""

    checkpoint: Checkpoint
    precision: Precision = "auto"
    """On GPUs; "auto" is bfloat16. CPUs compute in float32."""
    compiled: bool = True
    """Whether torch compiles the model, on GPUs."""
    trust_remote_code: bool = False
    """Whether to run the model by the Python code in its checkpoint, instead of by gristmill's own network."""

    @cached_property
    def config(self) -> CosmosConfig:
        """The configuration."""
        return CosmosConfig.of(self.checkpoint.config, self.checkpoint.title)

    @property
    def item(self) -> tuple[int, int, int, int]:
        """The shape of the input of one clip: frames, height, width, colours."""
        return self.config.frames, self.config.side, self.config.side, 3

    @property
    def space(self) -> str:
        """What kind of model it is. Embeddings of different ones cannot be compared."""
        return f"cosmos-embed1: {self.config.width} numbers of {self.config.frames} x {self.config.side} pixels"

    def check(self) -> None:
        """Raise a `ModelError` if it cannot be loaded, as far as that is known without reading weights."""
        config = self.config
        if self.trust_remote_code:
            require_code(self.checkpoint)
            return
        if config.time != TEMPORAL_PARAMETER:
            raise unknown(self.checkpoint.title, f"it encodes time by {config.time!r}, not {TEMPORAL_PARAMETER!r}")
        weights = self.checkpoint.weight_shapes()
        if weights is not None:
            shape_of(config, weights, self.checkpoint.title)

    def fetch(self) -> None:
        """Download what is not on this machine yet."""
        self.checkpoint.fetch()

    def load(self, device: torch.device | str = "cpu") -> RowModel:
        """Load the model. Its files must be on this machine (`fetch`)."""
        from gristmill.models.vision.loading import require_torch

        require_torch(self.checkpoint)
        import torch

        place = torch.device(device)
        types = {"float32": torch.float32, "float16": torch.float16}
        dtype = torch.float32 if place.type == "cpu" else types.get(self.precision, torch.bfloat16)
        if self.trust_remote_code:
            from gristmill.models.video.published import published_cosmos

            module: Any = published_cosmos(self.checkpoint.folder(), place, dtype)
            return RowModel(module, place, self.config.width, compiled=False)
        return self._loaded(place, dtype)

    def _loaded(self, device: torch.device, dtype: torch.dtype) -> RowModel:
        from gristmill.models.video.cosmos_network import CosmosEmbed1, network_state
        from gristmill.models.vision.loading import finished
        from gristmill.models.vision.vit_weights import load_state

        weights = self.checkpoint.weights()
        shape = shape_of(self.config, weights.shapes, self.checkpoint.title)
        tensors = Tensors(self.checkpoint.title)
        # the text side of the Q-Former is not read
        unread = (".word_embeddings.", ".position_embeddings.", ".intermediate.", ".output.", ".cls.")
        tensors.update(weights.under("", lambda name: not _is_text(name, unread)))
        for name, tensor in tensors.items():
            tensors[name] = tensor.float()
        module = CosmosEmbed1(shape, preprocessing(shape))
        load_state(module, network_state(shape, tensors), self.checkpoint.title)
        return finished(module, self.checkpoint, device, dtype, self.compiled, self.item, shape.width)


def preprocessing(shape: CosmosShape) -> Preprocessing:
    """How the frames of a clip become the input: resized to a square, with the colours of CLIP."""
    return Preprocessing(None, exact=(shape.side, shape.side), mean=CLIP_MEAN, std=CLIP_STD)


def checkpoint_of(variant: str, model: str | None, model_dir: str | None) -> str:
    """Return the name of the checkpoint of a variant: ``model``, or in a folder of models, or on the hub."""
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, not {variant!r}.")
    if model is not None and model_dir is not None:
        raise ValueError("model and model_dir exclude each other: give one of them.")
    if model_dir is None:
        return model or HUB.format(variant)
    inside = Path(model_dir).expanduser() / HUB.format(variant)
    return str(inside if inside.is_dir() else model_dir)


def require_code(checkpoint: Checkpoint) -> None:
    """Raise a `ModelError` if a checkpoint has no Python code, or transformers is not installed."""
    if "AutoModel" not in (checkpoint.config.get("auto_map") or {}):
        raise ModelError(
            f"{checkpoint.title} has no Python code of its own: auto_map in config.json names no AutoModel.\n"
            "    set trust_remote_code=False."
        )
    try:
        import transformers  # noqa: F401  # only whether it is installed
    except ImportError:
        raise ModelError(
            f"{checkpoint.title} needs the package transformers.\n    pip install 'gristmill[models]'"
        ) from None


def _is_text(name: str, unread: tuple[str, ...]) -> bool:
    """Whether a weight of the Q-Former is only for texts."""
    is_bert = name.startswith(("qformer.", "Qformer."))
    kept = (".attention.", ".crossattention.", "_query.")
    return is_bert and any(part in name for part in unread) and not any(part in name for part in kept)
