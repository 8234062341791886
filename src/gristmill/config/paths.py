"""Which arguments are paths, and the folder at which relative paths begin."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, get_args, get_origin

from gristmill.config import signatures

NAMES = frozenset({"path", "paths", "file", "files", "folder", "folders", "dir", "directory"})
MODELS = ("model", "model_identifier", "adapter")
ENDS = tuple(f"_{name}" for name in sorted(NAMES))


def names_path(made: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    """Whether a parameter of a class or function takes paths: by its annotation, or by its name.

    The annotation has `Path` or `os.PathLike`, or the name is like ``path``, ``file`` or ``model_path``.
    """
    hint = signatures.hint_of(made, parameter)
    return any(_is_path(one) for one in signatures.options(hint)) or is_path_name(parameter.name)


def may_name_path(name: str) -> bool:
    """Whether a parameter of this name takes a folder or a published name, as those of tokenizers and models do."""
    return "tokenizer" in name or name in MODELS


def _is_path(hint: Any) -> bool:
    cls = get_origin(hint) or hint
    if signatures.is_list(hint):
        return any(_is_path(one) for member in get_args(hint) for one in signatures.options(member))
    return isinstance(cls, type) and issubclass(cls, PurePath | os.PathLike)


def is_path_name(name: str) -> bool:
    """Whether a parameter of this name takes paths."""
    return name in NAMES or name.endswith(ENDS)


def located(path: str, folder: str) -> str:
    """Return a path relative to a folder. URLs, absolute paths and those of a home folder stay as they are.

    >>> located("input/", "/data"), located("./a.txt", "/data"), located("s3://bucket/a", "/data")
    ('/data/input/', '/data/a.txt', 's3://bucket/a')
    """
    if not path or "://" in path or path.startswith(("/", "~")):
        return path
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    return os.path.join(folder, path)


def absolute(made: Any, argument: str, value: Any) -> Any:
    """Return an argument of an object; if it is a path, or a list of paths, relative to the current folder."""
    parameter = signatures.parameters(type(made)).get(argument)
    if parameter is None:
        return value
    if names_path(type(made), parameter):
        return _absolute(value)
    exists = may_name_path(argument) and isinstance(value, str | PurePath) and os.path.exists(value)
    return _absolute(value) if exists else value


def _absolute(value: Any) -> Any:
    if isinstance(value, str | PurePath):
        return located(str(value), os.getcwd())
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_absolute(one) for one in value]
    return value
