"""A hash of code and the objects that it uses: the same in every process, different after a change.

A function is its bytecode, defaults, closure and the globals that it names; a class its members and bases; any other
object what pickle would store of it. Comments, docstrings, line numbers and formatting do not count. Code is followed
through the user's own modules. Of the standard library and installed packages only names and versions count, of
gristmill only names: a run resumes with a newer gristmill, whose stages have revisions for what changes results.

A hash of source text cannot replace this. Closures, attributes and globals of notebooks have values that stand in no
source, code may have no source at all, and a hash of a whole file would refuse to resume a run after any other edit in
the same script, such as another number of workers.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import os
import re
import sys
import types
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from gristmill.secrets import STORAGE, public_options
from gristmill.stages.core import ProcessingStage
from gristmill.stages.spool import Spool
from gristmill.storage import Folder

NOT_RESULTS = frozenset(
    {
        *("resources", "batch_size", "num_workers", "worker_max_lifetime_m", "worker_restart_interval_m"),
        *(
            "timeout_s",
            "max_attempts",
            "max_in_flight",
            "split_on_failure",
            "_settings",
            "_arguments",
            "name",
            "fan_out",
        ),
    }
)
"""Attributes of stages that may be changed between runs without changing what comes out."""
MOST_DEPTH = 60
"""Deeper objects count by type and name: code is not nested as deep, and Python's stack is limited."""
SCALARS = (bool, int, float, complex, str, bytes, types.NoneType, types.EllipsisType)
NOT_FOLLOWED = (os.environ.__class__, inspect.Signature, types.CodeType, types.FrameType)
"""Objects that change without a change of code, or are hashed by other means."""


def code_hash(code: Any) -> str:
    """Return a hash of a class, a function or any other object."""
    return code_hashes(code)[0]


def code_hashes(code: Any) -> tuple[str, dict[str, str]]:
    """Return a hash of an object, and one of each function and constant in it by name, to report what has changed."""
    hasher = CodeHasher(_module_of(code.__func__ if isinstance(code, types.MethodType) else code))
    return hasher.hash_of(code)[:16], dict(sorted(hasher.named.items()))


def name_of(code: Any) -> str:
    return f"{getattr(code, '__module__', '?')}.{getattr(code, '__qualname__', type(code).__qualname__)}"


def attributes_of(made: Any) -> dict[str, Any]:
    """Return the attributes of an object that results can depend on, sorted by name."""
    state = getattr(made, "__dict__", {})
    if isinstance(made, Spool):  # by the names of its arguments, as in the logs of earlier versions
        state = {name: state[name] for name in ("barrier", "gives_up", "with_documents", "writer")}
        state["folder"] = made.folder
    if not isinstance(made, ProcessingStage):
        return public_options({key: state[key] for key in sorted(state) if key != "_arguments"})
    # the storage options of readers
    names = {key: STORAGE if key == "options" and "file_paths" in state else key for key in sorted(state)}
    return public_options({name: state[key] for key, name in names.items() if key not in NOT_RESULTS})


def has_own_state(cls: type) -> bool:
    """Return whether instances of a class have other state than their attributes."""
    own = ("__reduce__", "__reduce_ex__", "__getstate__")
    return any(vars(base).get("__slots__") or any(name in vars(base) for name in own) for base in cls.__mro__[:-1])


class CodeHasher:
    """Hashes a graph of objects. A repeated object has its hash already; in a cycle it counts by its name."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.open: dict[int, int] = {}
        self.done: dict[int, tuple[str, Any]] = {}
        """Hashes by id, with the object: while it lives no other object has its id."""
        self.named: dict[str, str] = {}
        """Hashes of the user's functions and constants by name, without the objects that these use."""

    def hash_of(self, value: Any) -> str:
        """Return the hash of a value."""
        known = self.done.get(id(value))
        if known is not None:
            return known[0]
        if id(value) in self.open or len(self.open) >= MOST_DEPTH:
            return f"<{name_of(value)}>"
        self.open[id(value)] = len(self.open)
        try:
            found = _digest(self.parts(value))
        finally:
            del self.open[id(value)]
        self.done[id(value)] = (found, value)
        return found

    def member(self, value: Any) -> str:
        """Return a plain value as text, any other as its hash."""
        if isinstance(value, SCALARS) and type(value).__module__ == "builtins":
            return repr(value)
        return self.hash_of(value)

    def parts(self, value: Any) -> Iterable[str]:
        if isinstance(value, SCALARS) and type(value).__module__ == "builtins":
            return [repr(value)]
        if isinstance(value, type):
            return self.of_class(value)
        if isinstance(value, types.FunctionType):
            return self.of_function(value)
        if isinstance(value, types.MethodType):
            return ["method", self.member(value.__func__), self.member(value.__self__)]
        if isinstance(value, types.ModuleType):
            return ["module", value.__name__, version_of(value.__name__)]
        if isinstance(value, types.BuiltinFunctionType):
            owner = value.__self__  # as in words.__contains__
            held = [] if isinstance(owner, types.ModuleType | None) else [self.member(owner)]
            return [name_of(value), version_of(_module_of(value)), *held]
        if isinstance(value, staticmethod | classmethod):
            return [type(value).__name__, self.member(value.__func__)]
        if isinstance(value, property):
            return ["property", *(self.member(one) for one in (value.fget, value.fset, value.fdel))]
        if isinstance(value, functools.partial):
            return ["partial", *(self.member(one) for one in (value.func, value.args, value.keywords))]
        if isinstance(value, re.Pattern):
            return ["pattern", repr(value.pattern), str(value.flags)]
        if isinstance(value, PurePath):
            return ["path", str(value)]
        if isinstance(value, Folder):
            return ["folder", value.name]
        return self.of_container(value)

    def of_container(self, value: Any) -> Iterable[str]:
        kind = type(value)
        if kind in (list, tuple):
            return [kind.__name__, *map(self.member, value)]
        if kind in (set, frozenset):
            # Sets have no order, so each element is hashed alone.
            return [kind.__name__, *sorted(CodeHasher(self.root).member(one) for one in value)]
        if kind in (dict, types.MappingProxyType):
            items = public_options(value).items()
            return [kind.__name__, *sorted(f"{self.member(key)}: {self.member(one)}" for key, one in items)]
        return self.of_object(value)

    def of_object(self, value: Any) -> Iterable[str]:
        kind = type(value)
        parts = ["object", self.member(kind)]
        if isinstance(value, NOT_FOLLOWED):
            return parts
        wrapped = getattr(value, "__dict__", {}).get("__wrapped__")
        if wrapped is not None and not _is_own(kind.__module__, self.root):  # lru_cache, numba's functions
            return [*parts, self.member(wrapped)]
        if hasattr(value, "__dict__") and not has_own_state(kind):
            return [*parts, self.member(attributes_of(value))]
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # locks and files, and any error of an object's own method
            return [*parts, self.member(attributes_of(value))]
        if isinstance(reduced, str):
            return [*parts, reduced]
        made, arguments, state, items, pairs = (*reduced, *[None] * 5)[:5]
        stored = (made, arguments, state, *(None if one is None else list(one) for one in (items, pairs)))
        return [*parts, *map(self.member, stored)]

    def of_class(self, cls: type) -> Iterable[str]:
        if _top(cls.__module__) == "gristmill":  # without the module: classes may move between versions
            return ["class", f"gristmill.{cls.__qualname__}"]
        parts = ["class", name_of(cls)]
        if not _is_own(cls.__module__, self.root):
            return [*parts, version_of(cls.__module__)]
        parts += [self.member(base) for base in cls.__bases__]
        for key, value in sorted(vars(cls).items()):
            if not key.startswith("__") or isinstance(value, types.FunctionType | staticmethod | classmethod):
                parts += [key, self.member(value)]
                self.note(f"{cls.__qualname__}.{key}", value)
        return parts

    def of_function(self, function: types.FunctionType) -> Iterable[str]:
        place = str(function.__globals__.get("__name__", "?"))  # not __module__, which a decorator may have changed
        parts = ["function", *(self.member(one) for one in (function.__defaults__, function.__kwdefaults__))]
        parts += [self.member(one) for cell in function.__closure__ or () for one in _contents(cell)]
        if not _is_own(place, self.root):
            return [*parts, place, function.__code__.co_name, version_of(place)]
        own = self.of_bytecode(function.__code__, function.__doc__)
        self.named[f"{function.__qualname__}()"] = _digest([*parts, *own])[:8]
        parts += own
        loaded, named = _names(function.__code__)
        for name in sorted(loaded & function.__globals__.keys()):
            value = function.__globals__[name]
            parts += [name, self.member(value), *self.of_module(value, named)]
            self.note(name, value)
        return parts

    def note(self, name: str, value: Any) -> None:
        """Store the hash of a constant; functions, classes and modules have their own."""
        if not isinstance(value, types.FunctionType | types.ModuleType | type | staticmethod | classmethod | property):
            self.named[name] = _digest([self.member(value)])[:8]

    def of_module(self, module: Any, named: set[str], depth: int = 0) -> list[str]:
        """Return the parts of one of the user's modules that code names, as in ``helpers.clean(text)``."""
        if not isinstance(module, types.ModuleType) or not _is_own(module.__name__, self.root) or depth > 3:
            return []
        parts = []
        for name in sorted(named & vars(module).keys()):
            value = vars(module)[name]
            parts += [name, self.member(value), *self.of_module(value, named, depth + 1)]
        return parts

    def of_bytecode(self, code: types.CodeType, doc: str | None) -> list[str]:
        parts = [code.co_code.hex(), *code.co_names, *code.co_varnames]
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                parts += self.of_bytecode(constant, None)
            elif constant is not doc:
                parts.append(self.member(constant))
        return parts


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()[:32]


def _names(code: types.CodeType) -> tuple[set[str], set[str]]:
    """Return the globals that code loads, and all names in it, attributes included."""
    loaded = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    named = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            more, others = _names(constant)
            loaded |= more
            named |= others
    return loaded, named


def _is_own(module: str, root: str) -> bool:
    """Return whether code of a module is followed, coming from ``root``."""
    top = _top(module)
    if top == "gristmill" or (top in sys.stdlib_module_names and module != "__main__"):
        return False
    return module == root or not _is_installed(module)


def _is_installed(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and not {"site-packages", "dist-packages"}.isdisjoint(PurePath(file).parts)


def version_of(module: str) -> str:
    """Return the version of the package of a module, if it has one that counts."""
    top = _top(module)
    version = None if top == "gristmill" else getattr(sys.modules.get(top), "__version__", None)
    return version if isinstance(version, str) else ""


def _top(module: str) -> str:
    return str(module).split(".")[0]  # some C classes have no text there


def _module_of(code: Any) -> str:
    if isinstance(code, types.FunctionType):
        return str(code.__globals__.get("__name__", "?"))
    if isinstance(code, types.ModuleType):
        return code.__name__
    return str(getattr(code, "__module__", None) or type(code).__module__)


def _contents(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # a name that is not bound yet
        return []
