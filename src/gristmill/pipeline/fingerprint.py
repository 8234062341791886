"""Descriptions of stages as plain values: equal for stages that do the same, different after a change.

A run that resumes compares them with those of the run before.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import re
import sys
import types
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from gristmill.config.paths import absolute
from gristmill.ledger.fingerprints import CODE, CODE_PARTS
from gristmill.pipeline.code import NOT_FOLLOWED, attributes_of, code_hash, code_hashes, has_own_state, name_of
from gristmill.pipeline.data_files import data_files
from gristmill.secrets import public_options, public_value
from gristmill.stages.contracts import Component
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.function_definitions import FunctionStage
from gristmill.stages.protocols import Sink
from gristmill.stages.registry import arguments_of
from gristmill.stages.resources import Resources
from gristmill.storage import Folder

MOST_DEPTH = 6
"""Deeper values are described by a hash."""


def describe_stage(stage: ProcessingStage[Any, Any]) -> dict[str, Any]:
    """Return a stage as plain values for JSON, in a fixed order.

    A stage of a registered class is its name and arguments, defaults included; any other its path, its attributes and a
    hash of its code. Stamps of the files that they name, and of `fingerprint_files`, are added (see `data_files`). Code
    outside gristmill is always hashed: it may change without a new version. Names are included, as excluded documents
    hold them; resources, batch sizes, the folder of a writer and credentials are not.
    """
    described: dict[str, Any] = {"name": stage.name}
    recipes = sys.modules.get("gristmill.stages.text.recipes.stage")  # not imported: then this is no recipe
    if recipes is not None and isinstance(stage, recipes.RecipeStage):
        rules = [_described(one, 0) for one in stage.rules]
        described |= {"recipe": _value(stage.described(), 0), "rules": rules}
        described |= stage.resolved_arguments()
        return described
    if isinstance(stage, CompositeStage):
        return described | _described(stage, 0) | {"stages": [describe_stage(leaf) for leaf in stage.flatten()]}
    if isinstance(stage, FunctionStage):
        return described | {"function": name_of(stage._function)} | _code(stage._function)
    return described | _described(stage, 0)


def _described(made: Any, depth: int) -> dict[str, Any]:
    cls = type(made)
    path = f"{cls.__module__}.{cls.__qualname__}"
    ours = str(cls.__module__).split(".")[0] == "gristmill"
    arguments = arguments_of(made)
    if arguments is not None:
        bound = inspect.signature(cls).bind_partial(**arguments)
        bound.apply_defaults()
        known = made if isinstance(made, Component) else Component()
        left_out = {*known.indifferent, *(("path",) if isinstance(made, Sink) else ())}
        shown = {key: value for key, value in public_options(bound.arguments).items() if key not in left_out}
        resolved = known.resolved_arguments()
        shown |= {key: resolved[key] for key, value in shown.items() if value is None and key in resolved}
        values = {key: _value(absolute(made, key, value), depth) for key, value in shown.items()}
        described: dict[str, Any] = {"class": cls.__name__ if ours else path, "arguments": values}
        if known.revision > 1:
            described["revision"] = known.revision
        return described | _files(made, bound.arguments) | ({} if ours else _code(cls))
    attributes = attributes_of(made)
    values = {key: _value(value, depth) for key, value in attributes.items()}
    return {"class": path, "attributes": values} | _files(made, attributes) | _code(cls)


def _files(made: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    files = data_files(made, arguments)
    return {"files": files} if files else {}


def _code(code: Any) -> dict[str, Any]:
    return dict(zip((CODE, CODE_PARTS), code_hashes(code), strict=True))


def _value(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return _scalar(value)
    if depth >= MOST_DEPTH or isinstance(value, (*NOT_FOLLOWED, types.ModuleType)):
        return _hashed(value)
    if isinstance(value, PurePath):
        return _scalar(str(value))
    if isinstance(value, Folder):
        return value.name
    if isinstance(value, bytes | bytearray):
        return hashlib.sha256(value).hexdigest()[:16]
    if isinstance(value, Mapping):
        shown = public_options(value)
        return {str(key): _value(shown[key], depth + 1) for key in sorted(shown, key=str)}
    if isinstance(value, set | frozenset):
        return sorted((_value(one, depth + 1) for one in value), key=repr)
    if isinstance(value, list | tuple):
        return [_value(one, depth + 1) for one in value]
    if isinstance(value, Resources):
        return str(value)
    if isinstance(value, type):
        return {"class": f"{value.__module__}.{value.__qualname__}"} | _code(value)
    if isinstance(value, functools.partial):
        given = {**{str(i): one for i, one in enumerate(value.args)}, **value.keywords}
        described = {"function": _value(value.func, depth + 1), "arguments": _value(given, depth + 1)}
        return described | _files(value, given)
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return {"function": name_of(value)} | _code(value)
    if isinstance(value, re.Pattern):
        return {"pattern": _value(value.pattern, depth), "flags": int(value.flags)}
    if arguments_of(value) is not None or (hasattr(value, "__dict__") and not has_own_state(type(value))):
        return _described(value, depth + 1)
    return _hashed(value)


def _hashed(value: Any) -> dict[str, str]:
    return {"class": f"{type(value).__module__}.{type(value).__qualname__}", "hash": code_hash(value)}


def _scalar(value: Any) -> Any:
    """Return a plain value that JSON preserves: it is compared with one from a file."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value) if -(1 << 63) <= value < 1 << 63 else str(int(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    text = public_value(str.__str__(value))
    return text.encode("utf-8", "backslashreplace").decode()
