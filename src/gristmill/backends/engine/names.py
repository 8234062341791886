"""Classes and functions that workers cannot import: those of scripts, notebooks, test modules and pipeline files."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from gristmill.backends.base import Plan
from gristmill.errors import PipelineError
from gristmill.tasks import Task

_MOST_BYTES = (1 << 31) - (1 << 20)
"""`marshal` takes no more in one piece."""


class LocalNames:
    """The task classes of modules that exist only in the driver.

    They are sent to workers once, so that tasks can name them; what is not among them travels inside each task.
    Until it is closed, cloudpickle knows of these modules too.
    """

    def __init__(self) -> None:
        self._registered = _register(unimportable())
        self.modules = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
        self.classes: dict[str, dict[str, type]] = {}
        for module in self.modules:
            if any(module[:i] not in sys.modules for i, sign in enumerate(module) if sign == "."):
                continue  # not even this process could find it by name
            for name, value in list(vars(sys.modules.get(module, object)).items()):
                is_task = isinstance(value, type) and issubclass(value, Task) and value.__module__ == module
                if is_task and _travels(value):
                    self.classes.setdefault(module, {})[name] = value

    def close(self) -> None:
        _unregister(self._registered)

    def dumps(self, task: Task[Any], buffers: list[pickle.PickleBuffer]) -> bytes:
        """Pickle a task if all it names is known to workers; `PicklingError` if not."""
        file = io.BytesIO()
        pickler = _NamingPickler(file, protocol=5, buffer_callback=buffers.append)
        pickler.local = self
        pickler.dump(task)
        return file.getvalue()

    def check(self, value: Any) -> None:
        module = value.__module__
        if module in self.modules and self.classes.get(module, {}).get(value.__qualname__) is not value:
            raise pickle.PicklingError(f"{value!r} is not known to workers")


_users: Counter[str] = Counter()
"""Runs of this process that want a module registered; those that the user registered are not among them."""
_users_lock = threading.Lock()


def _register(modules: Iterable[ModuleType]) -> list[ModuleType]:
    with _users_lock:
        before = cloudpickle.list_registry_pickle_by_value()
        wanted = [x for x in modules if x.__name__ not in before or x.__name__ in _users]
        for module in wanted:
            cloudpickle.register_pickle_by_value(module)
        _users.update(x.__name__ for x in wanted)
    return wanted


def _unregister(modules: list[ModuleType]) -> None:
    with _users_lock:
        for module in modules:
            _users[module.__name__] -= 1
            if not _users[module.__name__]:
                del _users[module.__name__]
                with contextlib.suppress(ValueError):  # the user has unregistered it
                    cloudpickle.unregister_pickle_by_value(module)


class _NamingPickler(pickle.Pickler):
    local: LocalNames

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (type, FunctionType)):
            self.local.check(value)
        return NotImplemented


def _travels(value: type) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # a class that refuses, for whatever reason, matters only to tasks that use it
        return False
    return True


def unimportable() -> Iterator[ModuleType]:
    """Modules of the user that are loaded here but that a worker, with the same path, would not find."""
    paths = sysconfig.get_paths()
    installed = tuple(paths[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    found: dict[str, ModuleSpec | None] = {}
    for name, module in sys.modules.copy().items():  # another thread may be importing
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or file.startswith(installed) or getattr(module, "__name__", None) != name:
            continue
        if name == "__main__" or name.partition(".")[0] == "gristmill":
            continue
        spec = _find(name, found)
        if spec is None or spec.origin is None or os.path.realpath(spec.origin) != os.path.realpath(file):
            yield module


def _find(name: str, found: dict[str, ModuleSpec | None]) -> ModuleSpec | None:
    """Find a module as an import in a fresh interpreter would: `importlib.util.find_spec` sees what is loaded."""
    if name not in found:
        parent, _, _ = name.rpartition(".")
        package = _find(parent, found) if parent else None
        path = package.submodule_search_locations if package is not None else None
        spec = None
        if not parent or path is not None:
            for finder in sys.meta_path:
                spec = finder.find_spec(name, path)
                if spec is not None:
                    break
        found[name] = spec
    return found[name]


def learn_names(classes: dict[str, dict[str, type]]) -> None:
    """In a worker: put the classes of modules that do not exist here where pickle looks for them."""
    for module, names in classes.items():
        parts = module.split(".")
        for i in range(1, len(parts)):
            _ensure_package(".".join(parts[:i]))
        target = sys.modules.setdefault(module, ModuleType(module))
        for name, value in names.items():
            setattr(target, name, value)


def _ensure_package(name: str) -> None:
    """Pickle imports the packages above a module too."""
    try:
        importlib.import_module(name)
    except ImportError:
        package = sys.modules[name] = ModuleType(name)
        package.__path__ = []


def pickle_steps(plan: Plan, local: LocalNames) -> bytes:
    """The stages of each step, with what workers cannot import inside. Raises `PipelineError` naming the stage."""
    try:
        stages = [step.stages for step in plan.steps]
        whole: bytes = cloudpickle.dumps((stages, local.classes, plan.documents()), protocol=5)
    except Exception as error:  # a stage may hold anything; whatever refuses to travel is named
        for stage in (stage for step in plan.steps for stage in step.stages):
            try:
                cloudpickle.dumps(stage)
            except Exception as reason:
                raise PipelineError(
                    f"stage '{stage.name}' cannot be sent to a worker: {type(reason).__name__}: {reason}. "
                    "Open files, locks, connections and models in setup(), not in __init__()."
                ) from None
        raise PipelineError(f"the stages cannot be sent to a worker: {type(error).__name__}: {error}") from None
    if len(whole) > _MOST_BYTES:
        raise PipelineError(
            f"the stages hold {len(whole) / 1e9:.1f} GB, which is too much to send. Load large things in setup()."
        )
    return whole
