"""From pixels to the input of a model, as its preprocessor_config.json describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint

if TYPE_CHECKING:
    from PIL.Image import Image

FILE = "preprocessor_config.json"
PROCESSOR_FILE = "processor_config.json"
"""Where newer versions of transformers save it, as ``image_processor``."""
BICUBIC = 3
RESAMPLES = range(6)
"""Pillow's numbers of filters."""
LONG = 8
"""Of an image so many times as long as wide, only the part that the crop leaves is resized."""
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the input of a model: resized, cropped at the centre, scaled and normalized."""

    short_side: int | None
    """Resize so that the short side has this many pixels."""
    exact: tuple[int, int] | None = None
    """Or resize to this height and width."""
    crop: tuple[int, int] | None = None
    """Height and width of the crop."""
    resample: int = BICUBIC
    factor: float = 1 / 255
    mean: Triple = (0.0, 0.0, 0.0)
    std: Triple = (1.0, 1.0, 1.0)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the result."""
        shape = self.crop or self.exact
        assert shape is not None, "`of_config` makes none without a fixed size"
        return shape

    @property
    def needed_side(self) -> int:
        """The short side that an image must have so that it is made smaller only."""
        return self.short_side or max(self.shape)

    def pixels(self, image: Array) -> Array:
        """The pixels of one image, uint8 (height, width, 3), resized and cropped. They are not normalized yet."""
        from PIL import Image

        found = Image.fromarray(image)
        height, width = image.shape[:2]
        size = self._resized(height, width)
        if self.crop is None or max(height, width) <= LONG * min(height, width):
            resized = found if size == (height, width) else found.resize(size[::-1], self._filter())
            return centre(np.asarray(resized), self.shape)
        return centre(np.asarray(self._long(found, size)), self.shape)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after resizing."""
        if self.exact is not None:
            return self.exact
        side = self.short_side
        if side is None:
            return height, width
        if width <= height:
            return int(side * height / width), side
        return side, int(side * width / height)

    def _long(self, image: Image, size: tuple[int, int]) -> Image:
        """Resize the part of a long image that the crop leaves: the whole of it could need any amount of memory."""
        (height, width), (tall, wide) = self.shape, size
        top, left = max(0, (tall - height) // 2), max(0, (wide - width) // 2)
        bottom, right = min(tall, top + height), min(wide, left + width)
        y, x = image.height / tall, image.width / wide
        box = (left * x, top * y, min(image.width, right * x), min(image.height, bottom * y))
        return image.resize((right - left, bottom - top), self._filter(), box)

    def _filter(self) -> Any:
        from PIL.Image import Resampling

        return Resampling(self.resample)


def centre(pixels: Array, shape: tuple[int, int]) -> Array:
    """The centre of an image, in this height and width; black where the image is smaller."""
    height, width = shape
    tall, wide = pixels.shape[:2]
    if tall < height or wide < width:
        above, before = -((tall - height) // 2), -((wide - width) // 2)
        edges = [
            (max(0, above), max(0, height - tall - above)),
            (max(0, before), max(0, width - wide - before)),
            (0, 0),
        ]
        pixels = np.pad(pixels, edges)
        tall, wide = pixels.shape[:2]
    top, left = (tall - height) // 2, (wide - width) // 2
    return np.ascontiguousarray(pixels[top : top + height, left : left + width])


def preprocessing_of(checkpoint: Checkpoint, default: Preprocessing) -> Preprocessing:
    """Return the preprocessing of a checkpoint; ``default`` is that of its architecture, for what no file names."""
    config = checkpoint.json(FILE)
    if config is None:
        nested = (checkpoint.json(PROCESSOR_FILE) or {}).get("image_processor")
        config = nested if isinstance(nested, dict) else None
    if config is None:
        return default
    try:
        return of_config(config, default)
    except (TypeError, ValueError, KeyError) as error:
        raise ModelError(
            f"{checkpoint.title}: its {FILE} cannot be used: {error}.\n    get the {FILE} that belongs to the model."
        ) from None


def of_config(config: Mapping[str, Any], default: Preprocessing) -> Preprocessing:
    """Return the preprocessing of a configuration; a `ValueError` for one that gives images of several sizes."""
    for name in ("do_pad", "do_split_image", "do_image_splitting"):
        if config.get(name):
            raise ValueError(f"{name} is not supported")
    made = replace(
        default,
        resample=int(config.get("resample", default.resample)),
        factor=float(config.get("rescale_factor", default.factor)) if config.get("do_rescale", True) else 1.0,
        mean=_triple(config.get("image_mean", default.mean), "image_mean"),
        std=_triple(config.get("image_std", default.std), "image_std"),
    )
    if made.resample not in RESAMPLES:
        raise ValueError(f"resample {made.resample} is none of Pillow's filters")
    if not config.get("do_normalize", True):
        made = replace(made, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    made = _with_size(made, config)
    if not config.get("do_center_crop", _crops_by_default(config, default)):
        made = replace(made, crop=None)
    elif config.get("crop_size") is not None:
        made = replace(made, crop=_sides(config["crop_size"], "crop_size"))
    if made.crop is None and made.exact is None:
        raise ValueError("images get no fixed size: there is neither do_center_crop nor a size of height and width")
    return made


def _crops_by_default(config: Mapping[str, Any], default: Preprocessing) -> bool:
    """Whether images are cropped if a configuration does not tell: that is a matter of its class in transformers."""
    name = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    return default.crop is not None and not name.startswith(("Siglip", "ViT"))


def _with_size(made: Preprocessing, config: Mapping[str, Any]) -> Preprocessing:
    if not config.get("do_resize", True):
        return replace(made, short_side=None, exact=None)
    size = config.get("size")
    if size is None:
        return made
    if isinstance(size, int):
        is_square = made.exact is not None
        return replace(made, short_side=None if is_square else size, exact=(size, size) if is_square else None)
    if not isinstance(size, dict):
        raise ValueError(f"size is {size!r}")
    if set(size) == {"shortest_edge"}:
        return replace(made, short_side=_side(size["shortest_edge"], "size"), exact=None)
    if set(size) == {"height", "width"}:
        return replace(made, short_side=None, exact=_sides(size, "size"))
    raise ValueError(f"size is {size!r}, and only shortest_edge, or height and width, are supported")


def _sides(value: Any, name: str) -> tuple[int, int]:
    if isinstance(value, int):
        return _side(value, name), _side(value, name)
    if not isinstance(value, dict) or not {"height", "width"} <= set(value):
        raise ValueError(f"{name} is {value!r}")
    return _side(value["height"], name), _side(value["width"], name)


def _side(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 14:
        raise ValueError(f"{name} has a side of {value!r} pixels")
    return value


def _triple(value: Any, name: str) -> Triple:
    numbers = [value] * 3 if isinstance(value, int | float) else list(value)
    if len(numbers) != 3 or not all(isinstance(one, int | float) for one in numbers):
        raise ValueError(f"{name} is {value!r}, not three numbers")
    if name == "image_std" and not all(numbers):
        raise ValueError("image_std has a 0")
    return float(numbers[0]), float(numbers[1]), float(numbers[2])
