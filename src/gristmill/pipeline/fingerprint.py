"""What a stage is, as plain values: equal for two stages that do the same, different where one was changed.

A run that goes on after a crash compares them with those of the run before.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.function_definitions import FunctionStage
from gristmill.stages.registry import arguments_of
from gristmill.stages.resources import Resources
from gristmill.stages.text.recipes.stage import RecipeStage

NOT_RESULTS = frozenset(
    {
        *("resources", "batch_size", "num_workers", "worker_max_lifetime_m", "worker_restart_interval_m"),
        *("timeout_s", "max_attempts", "split_on_failure", "_settings", "_arguments", "name", "fan_out"),
    }
)
"""What may be changed between runs without changing what comes out."""
MOST_DEPTH = 8


def describe_stage(stage: ProcessingStage[Any, Any]) -> dict[str, Any]:
    """A stage as plain values, in an order that is always the same: ready for JSON.

    Of a registered class these are its name and arguments, defaults included; of any other its path, its plain
    attributes and a hash of its code. Code outside gristmill is hashed in any case: it may change without a new
    version. Names are included, as they are written into excluded documents; resources and batch sizes are not.
    """
    described: dict[str, Any] = {"name": stage.name}
    if isinstance(stage, RecipeStage):
        rules = [_described(one, 0) for one in stage.rules]
        return described | {"recipe": stage.described(), "text_field": stage.text_field, "rules": rules}
    if isinstance(stage, CompositeStage):
        return described | _described(stage, 0) | {"stages": [describe_stage(leaf) for leaf in stage.flatten()]}
    if isinstance(stage, FunctionStage):
        return described | {"function": _function(stage._function), "code": code_hash(stage._function)}
    return described | _described(stage, 0)


def code_hash(code: Any) -> str:
    """A hash of what a class or function does, as far as that is in its own code and that of its bases.

    Comments, docstrings, line numbers and formatting do not count. What it calls elsewhere does not either.
    """
    digest = hashlib.sha256()
    for part in _parts(code, set()):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:16]


def _described(made: Any, depth: int) -> dict[str, Any]:
    cls = type(made)
    path = f"{cls.__module__}.{cls.__qualname__}"
    ours = cls.__module__.split(".")[0] == "gristmill"
    arguments = arguments_of(made)
    if arguments is not None:
        bound = inspect.signature(cls).bind_partial(**arguments)
        bound.apply_defaults()
        values = {key: _value(value, depth) for key, value in bound.arguments.items()}
        return {"class": cls.__name__ if ours else path, "arguments": values} | ({} if ours else _code(cls))
    state = {key: value for key, value in getattr(made, "__dict__", {}).items() if key not in NOT_RESULTS}
    return {"class": path, "attributes": {key: _value(state[key], depth) for key in sorted(state)}} | _code(cls)


def _code(cls: type) -> dict[str, str]:
    return {"code": code_hash(cls)}


def _function(function: Any) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _value(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth >= MOST_DEPTH:
        return f"<{type(value).__module__}.{type(value).__qualname__}>"
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return hashlib.sha256(value).hexdigest()[:16]
    if isinstance(value, Mapping):
        return {str(key): _value(value[key], depth + 1) for key in sorted(value, key=str)}
    if isinstance(value, set | frozenset):
        return sorted((_value(one, depth + 1) for one in value), key=repr)
    if isinstance(value, list | tuple):
        return [_value(one, depth + 1) for one in value]
    if isinstance(value, Resources):
        return str(value)
    if type(value).__module__ == "numpy":
        plain = value.tolist() if hasattr(value, "tolist") else str(value)
        return hashlib.sha256(repr(plain).encode()).hexdigest()[:16]
    if isinstance(value, type):
        return f"<class {value.__module__}.{value.__qualname__}>"
    if isinstance(value, functools.partial):
        return {"function": _value(value.func, depth + 1), "arguments": _value([value.args, value.keywords], depth + 1)}
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return {"function": _function(value), "code": code_hash(value)}
    if hasattr(value, "pattern") and hasattr(value, "flags"):  # a compiled regular expression
        return {"pattern": _value(value.pattern, depth), "flags": int(value.flags)}
    return _described(value, depth + 1)


def _parts(code: Any, seen: set[int]) -> list[str]:
    """Everything that matters, as text, in an order that does not depend on hashes."""
    code = getattr(code, "__func__", code)
    code = inspect.unwrap(code) if callable(code) and not isinstance(code, type) else code
    if id(code) in seen:
        return []
    seen.add(id(code))
    if isinstance(code, type):
        parts = [code.__qualname__]
        for base in code.__mro__[1:]:
            if base.__module__.split(".")[0] not in ("builtins", "gristmill", "abc", "typing"):
                parts += _parts(base, seen)
        for key, value in sorted(vars(code).items()):
            if not key.startswith("__") or key in ("__init__", "__call__", "__post_init__"):
                parts += [key, *_member(value, seen)]
        return parts
    if isinstance(code, types.FunctionType):
        cells = [value for cell in code.__closure__ or () for value in _contents(cell)]
        defaults = [*(code.__defaults__ or ()), *(code.__kwdefaults__ or {}).items()]
        return [
            *_bytecode(code.__code__, code.__doc__),
            *(p for one in [*defaults, *cells] for p in _member(one, seen)),
        ]
    if isinstance(code, types.BuiltinFunctionType):
        return [_function(code)]
    return [f"{type(code).__module__}.{type(code).__qualname__}"]


def _member(value: Any, seen: set[int]) -> list[str]:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        return [part for one in (value.fget, value.fset) if one for part in _parts(one, seen)]
    if isinstance(value, types.FunctionType | types.MethodType | type):
        return _parts(value, seen)
    if value is None or isinstance(value, bool | int | float | str | bytes | list | tuple | dict | set | frozenset):
        return [_constant(value)]
    return [f"{type(value).__module__}.{type(value).__qualname__}"]


def _bytecode(code: types.CodeType, doc: str | None) -> list[str]:
    parts = [code.co_code.hex(), *code.co_names, *code.co_varnames]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            parts += _bytecode(constant, None)
        elif constant is not doc:
            parts.append(_constant(constant))
    return parts


def _constant(value: Any) -> str:
    """A constant as text; sets in order, as theirs depends on the process."""
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(_constant, value))) + "}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(_constant, value)) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_constant(key)}: {_constant(one)}" for key, one in value.items()) + "}"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    return f"<{type(value).__qualname__}>"


def _contents(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # a name that is not bound yet
        return []
