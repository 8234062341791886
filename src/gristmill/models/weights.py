"""The weights of a checkpoint, read by name."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
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


class Weights:
    """The weights in the files of a folder. Names are known at once; a tensor is read when it is asked for."""

    def __init__(self, files: dict[str, Path]) -> None:
        """``files`` maps each weight to its file."""
        self.files = files
        self._new_names = {_new_name(name): name for name in files}
        self._pickled: dict[Path, dict[str, Any]] = {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._new_names)

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
        from safetensors import safe_open

        opened: Any = stack.enter_context(safe_open(path, framework="pt"))
        get: Callable[[str], torch.Tensor] = opened.get_tensor
        return get

    def _pickle(self, path: Path) -> dict[str, Any]:
        if path not in self._pickled:
            self._pickled[path] = pickled_weights(path)
        return self._pickled[path]


def weights_in(folder: Path, title: str) -> Weights:
    """Return the weights in a folder, or raise a `ModelError`. No tensor is read."""
    if (folder / SAFE).exists():
        return Weights(dict.fromkeys(safe_names(folder / SAFE, title), folder / SAFE))
    if (folder / INDEX).exists():
        return Weights(_sharded(folder, title))
    if (folder / ADAPTER).exists():
        return Weights(dict.fromkeys(safe_names(folder / ADAPTER, title), folder / ADAPTER))
    files = sorted(folder.glob("*.pth"))
    if len(files) == 1:
        return Weights(dict.fromkeys(pickled_weights(files[0]), files[0]))
    pickles = [name for name in PICKLES if (folder / name).exists()]
    if pickles:
        raise ModelError(
            f"{title} has its weights only as a pickle, {pickles[0]}, which could run code when it is read.\n"
            f"    convert it where you trust it: AutoModel....from_pretrained(...).save_pretrained(folder), "
            "which writes model.safetensors, and name that folder."
        )
    raise ModelError(f"{title} has no weights: there is no {SAFE} in {folder}.\n    get the complete checkpoint.")


def _sharded(folder: Path, title: str) -> dict[str, Path]:
    try:
        named = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        files = {str(name): folder / Path(str(file)).name for name, file in named.items()}
    except (ValueError, KeyError, AttributeError, OSError) as error:
        raise ModelError(f"{title}: {INDEX} is damaged ({error}).\n    get the checkpoint again.") from None
    for path in sorted(set(files.values())):
        if not path.exists():
            raise ModelError(f"{title}: {path.name} is missing, which {INDEX} names.\n    get the complete checkpoint.")
        lost = {name for name, file in files.items() if file == path} - safe_names(path, title)
        if lost:
            raise ModelError(f"{title}: {path.name} does not have {min(lost)}.\n    get the checkpoint again.")
    return files


def safe_names(path: Path, title: str) -> set[str]:
    """Return the names in a safetensors file, or raise a `ModelError` if it is damaged. Only its header is read."""
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
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, OSError) as error:
        raise ModelError(
            f"{title}: {path.name} is damaged or cut ({error}).\n    get the checkpoint again: {path}"
        ) from None
    return set(header)


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
