"""Image models from checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.lazy import np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.loading import LAYER, Precision, Tensors
from gristmill.models.vision import lite0
from gristmill.models.vision.architectures import TWO_TOWERS, VitShape, kind_of, vit_shape
from gristmill.models.vision.preprocessing import Preprocessing, preprocessing_of
from gristmill.models.vision.rows import RowModel
from gristmill.models.weights import Shape

if TYPE_CHECKING:
    import torch

PATCHES = {
    "clip": "embeddings.patch_embedding.weight",
    "siglip": "embeddings.patch_embedding.weight",
    "dinov2": "embeddings.patch_embeddings.projection.weight",
    "dinov2_with_registers": "embeddings.patch_embeddings.projection.weight",
}
"""The weight of the first layer, which tells where the image model is in a checkpoint."""
PROJECTION = "visual_projection.weight"


@dataclass(frozen=True)
class VisionSpec:
    """Which image model to load: a plain value, which stages hold and send to their workers."""

    checkpoint: Checkpoint
    precision: Precision = "auto"
    """On GPUs; "auto" is float16 for CLIP and EfficientNet, and bfloat16 for the others. CPUs compute in float32."""
    compiled: bool = True
    """Whether torch compiles the model, on GPUs."""
    classes: bool = False
    """Whether it makes the probabilities of ImageNet's classes instead of embeddings. EfficientNet-Lite0 can."""

    @cached_property
    def shape(self) -> VitShape | None:
        """The shape of a vision transformer; None for EfficientNet-Lite0."""
        return None if lite0.is_lite0(self.checkpoint) else vit_shape(self.checkpoint)

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """How its input is made."""
        if self.shape is None:
            return lite0.PREPROCESSING
        return preprocessing_of(self.checkpoint, self.shape.preprocessing)

    @property
    def width(self) -> int:
        """Numbers for each image."""
        if self.shape is None:
            return lite0.CLASSES if self.classes else lite0.WIDTH
        return self.shape.width

    @property
    def space(self) -> str:
        """What kind of model it is. Embeddings of models with different texts cannot be compared."""
        return lite0.SPACE if self.shape is None else self.shape.space

    def check(self) -> None:
        """Raise a `ModelError` if it cannot be loaded, as far as that is known without reading weights."""
        shape = self.shape
        if shape is None:
            lite0.check_lite0(self.checkpoint)
            return
        if self.classes:
            raise ModelError(f"{self.checkpoint.title} has no classes of ImageNet: EfficientNet-Lite0 has them.")
        rows, columns = self.preprocessing.shape
        if min(rows, columns) < shape.patch:
            raise ModelError(
                f"{self.checkpoint.title}: images of {rows} x {columns} pixels are smaller than its patches of "
                f"{shape.patch}.\n    get the preprocessor_config.json that belongs to the model."
            )
        weights = self.checkpoint.weight_shapes()
        if weights is not None:
            check_shapes(self.checkpoint, shape, weights)

    def fetch(self) -> None:
        """Download what is not on this machine yet."""
        self.checkpoint.fetch()


def prefix_of(checkpoint: Checkpoint, names: Mapping[str, Any] | frozenset[str]) -> str:
    """Return what the names of the image model's weights begin with, or raise a `ModelError` if they are not there."""
    first = PATCHES[kind_of(checkpoint)]
    for prefix in ("vision_model.", "", "dinov2.", "dinov2_with_registers.", "model."):
        if prefix + first in names:
            return prefix
    raise ModelError(
        f"{checkpoint.title} does not have the weights of an image model: {first} is not among them.\n"
        "    get the complete checkpoint."
    )


def check_shapes(checkpoint: Checkpoint, shape: VitShape, weights: Mapping[str, Shape]) -> None:
    """Raise a `ModelError` if the weights are not those of the configuration."""
    prefix = prefix_of(checkpoint, weights)
    hidden, _, patch, _ = (*weights[prefix + PATCHES[shape.kind]], 0, 0, 0)[:4]
    found = {int(number) for name in weights if name.startswith(prefix) for number in LAYER.findall(name)}
    compared = [
        ("hidden_size", shape.hidden, hidden),
        ("patch_size", shape.patch, patch),
        ("num_hidden_layers", shape.layers, max(found, default=-1) + 1),
    ]
    if shape.projection is not None:
        if PROJECTION not in weights:
            raise ModelError(
                f"{checkpoint.title} has no {PROJECTION}, which makes embeddings of the states of CLIP.\n"
                "    name a checkpoint of CLIPModel or CLIPVisionModelWithProjection."
            )
        compared.append(("projection_dim", shape.projection, weights[PROJECTION][0]))
    for what, told, there in compared:
        if told != there:
            raise ModelError(
                f"{checkpoint.title}: its weights are not those of its config.json, where {what} is {told:,} instead "
                f"of {there:,}.\n    get the complete checkpoint, with the config.json that belongs to it."
            )


def load(spec: VisionSpec, device: torch.device | str = "cpu") -> RowModel:
    """Load a model. Its files must be on this machine (`VisionSpec.fetch`)."""
    require_torch(spec.checkpoint)
    import torch

    place = torch.device(device)
    shape = spec.shape
    if shape is None:
        module = _lite0(spec)
    else:
        module = _vit(spec, shape)
    dtype = dtype_of(spec.precision, place, "efficientnet" if shape is None else shape.kind)
    return finished(module, spec.checkpoint, place, dtype, spec.compiled, (*spec.preprocessing.shape, 3), spec.width)


def dtype_of(precision: Precision, device: torch.device, kind: str) -> torch.dtype:
    """Return the type in which an image model computes."""
    import torch

    if device.type == "cpu":
        return torch.float32
    if precision == "auto":
        return torch.float16 if kind in ("clip", "efficientnet") else torch.bfloat16
    types = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    return types[precision]


def finished(
    module: Any,
    checkpoint: Checkpoint,
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
    item: tuple[int, ...],
    width: int,
) -> RowModel:
    """Put a module on its device, and compute one item, so that a model that cannot work is found before the work."""
    import torch

    from gristmill.models.vision.vit import Normalize

    module = module.eval().requires_grad_(False).to(device, dtype)
    for part in module.modules():
        if isinstance(part, Normalize):
            part.float()  # pixels are normalized in 32 bits
    model = RowModel(module, device, width, compiled and device.type == "cuda")
    kind: Any = np.int32 if len(item) == 1 else np.uint8
    with torch.inference_mode():
        row = module(torch.from_numpy(np.zeros((1, *item), dtype=kind)).to(device))
    if not bool(torch.isfinite(row).all()):
        raise ModelError(
            f"{checkpoint.title} makes numbers that are not finite: its weights are damaged.\n"
            "    get the checkpoint again."
        )
    return model


def require_torch(checkpoint: Checkpoint) -> None:
    """Raise a `ModelError` if torch is not installed."""
    try:
        import torch  # noqa: F401  # only whether it is installed
    except ImportError:
        raise ModelError(f"{checkpoint.title} needs the package torch.\n    pip install 'gristmill[models]'") from None


def _lite0(spec: VisionSpec) -> Any:
    from gristmill.models.vision.efficientnet import EfficientNetLite0, lite0_state
    from gristmill.models.vision.vit_weights import load_state

    module = EfficientNetLite0(spec.preprocessing, spec.classes)
    tensors = Tensors(spec.checkpoint.title)
    tensors.update(spec.checkpoint.weights().under(""))
    load_state(module, lite0_state(module, tensors), spec.checkpoint.title)
    return module


def _vit(spec: VisionSpec, shape: VitShape) -> Any:
    from gristmill.models.vision.vit import Vit
    from gristmill.models.vision.vit_weights import load_state, vit_state

    weights = spec.checkpoint.weights()
    prefix = prefix_of(spec.checkpoint, weights.names)
    tensors = Tensors(spec.checkpoint.title)
    # of a checkpoint with both towers, the text model is not read
    tensors.update(weights.under(prefix, lambda name: "text_model" not in name and not name.startswith("text_")))
    if prefix and PROJECTION in weights.names:
        tensors[PROJECTION] = weights[PROJECTION]
    for name, tensor in tensors.items():
        tensors[name] = tensor.float()
    module = Vit(shape, spec.preprocessing)
    load_state(module, vit_state(shape, module.grid, tensors), spec.checkpoint.title)
    return module


def has_text_tower(checkpoint: Checkpoint) -> bool:
    """Whether it is a checkpoint with an image model and a text model."""
    return checkpoint.config.get("model_type") in TWO_TOWERS
