"""The weights of a checkpoint, read by name."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError

if TYPE_CHECKING:
    import torch

SAFE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_model.safetensors"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "adapter_model.bin")
_OLD_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
MOST_HEADER = 100 << 20


Shape = tuple[int, ...]
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_NUMBERS = ("F64", "F32", "F16", "BF16")


class Weights:
    """The weights in the files of a folder. Names and shapes are known at once, tensors are read on demand."""

    def __init__(self, files: dict[str, Path], old_shapes: Mapping[str, Shape]) -> None:
        """``files`` maps each weight to its file."""
        self.files = files
        self.old_shapes = old_shapes
        self._new_names = {_new_name(name): name for name in files}
        self._pickled: dict[Path, dict[str, Any]] = {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._new_names)

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shape of each weight."""
        return {new: self.old_shapes[old] for new, old in self._new_names.items()}

    def under(self, prefix: str, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, torch.Tensor]:
        """Read the wanted weights whose names begin with ``prefix``, by the rest of their names."""
        names = [name for name in self._new_names if name.startswith(prefix) and wanted(name)]
        return {name[len(prefix) :]: tensor for name, tensor in self.read(names)}

    def read(self, names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield these weights, each with its name, file by file."""
        by_file: dict[Path, list[str]] = {}
        for name in names:
            by_file.setdefault(self.files[self._new_names[name]], []).append(name)
        for path, those in by_file.items():
            with ExitStack() as stack:
                read = self._reader(path, stack)
                for name in those:
                    yield name, read(self._new_names[name])

    def __getitem__(self, name: str) -> torch.Tensor:
        return next(iter(self.read([name])))[1]

    def _reader(self, path: Path, stack: ExitStack) -> Callable[[str], torch.Tensor]:
        if path.suffix == ".pth":
            return self._pickle(path).__getitem__
        from safetensors import SafetensorError, safe_open

        try:
            opened: Any = stack.enter_context(safe_open(path, framework="pt"))
        except SafetensorError as error:
            raise _damaged(path, path.parent.name, error) from None
        get: Callable[[str], torch.Tensor] = opened.get_tensor
        return get

    def _pickle(self, path: Path) -> dict[str, Any]:
        if path not in self._pickled:
            self._pickled[path] = pickled_weights(path)
        return self._pickled[path]


def weights_in(folder: Path, title: str) -> Weights:
    """Return the weights in a folder, or raise a `ModelError`. No tensor is read."""
    if (folder / SAFE).exists():
        return _of_one(folder / SAFE, safe_shapes(folder / SAFE, title))
    if (folder / INDEX).exists():
        return _sharded(folder, title)
    if (folder / ADAPTER).exists():
        return _of_one(folder / ADAPTER, safe_shapes(folder / ADAPTER, title))
    files = sorted(folder.glob("*.pth"))
    if len(files) == 1:
        return _of_one(files[0], {name: tuple(one.shape) for name, one in pickled_weights(files[0]).items()})
    pickles = [name for name in PICKLES if (folder / name).exists()]
    if pickles:
        raise ModelError(
            f"{title} has its weights only as a pickle, {pickles[0]}, which could run code when it is read.\n"
            f"    convert it where you trust it: AutoModel....from_pretrained(...).save_pretrained(folder), "
            "which writes model.safetensors, and name that folder."
        )
    raise ModelError(f"{title} has no weights: there is no {SAFE} in {folder}.\n    get the complete checkpoint.")


def _of_one(path: Path, shapes: Mapping[str, Shape]) -> Weights:
    return Weights(dict.fromkeys(shapes, path), shapes)


def _sharded(folder: Path, title: str) -> Weights:
    try:
        named = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        files = {str(name): folder / Path(str(file)).name for name, file in named.items()}
    except (ValueError, KeyError, AttributeError, OSError) as error:
        raise ModelError(f"{title}: {INDEX} is damaged ({error}).\n    get the checkpoint again.") from None
    shapes: dict[str, Shape] = {}
    for path in sorted(set(files.values())):
        if not path.exists():
            raise ModelError(f"{title}: {path.name} is missing, which {INDEX} names.\n    get the complete checkpoint.")
        there = safe_shapes(path, title)
        lost = {name for name, file in files.items() if file == path} - there.keys()
        if lost:
            raise ModelError(f"{title}: {path.name} does not have {min(lost)}.\n    get the checkpoint again.")
        shapes |= there
    return Weights(files, shapes)


def safe_shapes(path: Path, title: str) -> dict[str, Shape]:
    """Return the names and shapes in a safetensors file, or raise a `ModelError` if it is damaged or quantized.

    Only its header is read.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, MOST_HEADER):
                raise ValueError("its header is longer than the file")
            header: dict[str, Any] = json.loads(file.read(length))
        header.pop("__metadata__", None)
        end = max((one["data_offsets"][1] for one in header.values()), default=0)
        if 8 + length + end != size:
            raise ValueError(f"{size:,} bytes where its header says {8 + length + end:,}")
        shapes = {name: _shape(name, one) for name, one in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, OSError) as error:
        raise _damaged(path, title, error) from None
    small = [name for name, one in header.items() if name.endswith(".weight") and one["dtype"] not in _NUMBERS]
    if small:
        raise ModelError(
            f"{title} is quantized: its weight {small[0]} is of type {header[small[0]]['dtype']}, not a float."
            "\n    name the checkpoint that it was made of, in 16 or 32 bits."
        )
    return shapes


def _shape(name: str, entry: dict[str, Any]) -> Shape:
    """The shape of a weight, by its entry in the header; a `ValueError` if its bytes are more or fewer."""
    shape = tuple(int(size) for size in entry["shape"])
    start, stop = entry["data_offsets"]
    size = _BYTES.get(entry["dtype"])
    if size is not None and math.prod(shape) * size != stop - start:
        raise ValueError(f"{name} has {stop - start:,} bytes for the shape {list(shape)}")
    return shape


def _damaged(path: Path, title: str, error: Exception) -> ModelError:
    return ModelError(f"{title}: {path.name} is damaged or cut ({error}).\n    get the checkpoint again: {path}")


def pickled_weights(path: Path) -> dict[str, Any]:
    """Read a ``.pth`` file, without running code in it."""
    import torch

    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # bad pickles raise errors of many kinds
        raise ModelError(
            f"{os.path.basename(path)} is not a file of plain tensors ({type(error).__name__}).\n"
            "    only such files are read, since others can run code."
        ) from None
    if not isinstance(loaded, dict) or not all(isinstance(one, torch.Tensor) for one in loaded.values()):
        raise ModelError(f"{path.name} does not hold a dict of tensors by name.")
    return dict(loaded)


def _new_name(name: str) -> str:
    """Return the name that newer checkpoints have for a weight."""
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            return name[: -len(old)] + new
    return name
