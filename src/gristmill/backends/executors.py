"""Executors by name. What one of them needs is imported when it is chosen."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gristmill.backends.base import Executor
from gristmill.errors import PlanError


@dataclass(frozen=True, slots=True)
class Home:
    """Where an executor is, and what it does not work without."""

    module: str
    cls: str
    needs: str = ""
    """A package that is not always installed,"""
    extra: str = ""
    """and the extra of gristmill that installs it."""


EXECUTORS = {
    "local": Home("gristmill.backends.local", "LocalExecutor"),
    "ray": Home("gristmill.backends.ray", "RayExecutor", "ray", "ray"),
    "ray_data": Home("gristmill.backends.ray_data", "RayDataExecutor", "ray", "ray"),
    "xenna": Home("gristmill.backends.xenna", "XennaExecutor", "cosmos_xenna", "xenna"),
}


def executor_class(name: str) -> type[Executor]:
    """Return the class of an executor. Raise `PlanError` with what to install if a package is missing."""
    home = EXECUTORS[name]
    if home.needs and importlib.util.find_spec(home.needs) is None:
        raise PlanError(f"executor {name!r} needs {home.needs!r}: pip install 'gristmill[{home.extra}]'")
    try:
        found: type[Executor] = getattr(importlib.import_module(home.module), home.cls)
    except ModuleNotFoundError as error:
        if error.name == home.module:
            raise PlanError(f"executor {name!r} is not in this version of gristmill: a later one may have it") from None
        if not home.extra or (error.name or "").startswith("gristmill."):
            raise
        raise PlanError(f"executor {name!r} needs {error.name!r}: pip install 'gristmill[{home.extra}]'") from None
    return found


def make_executor(name: str, options: Mapping[str, Any]) -> Executor:
    """An executor with its options, which it checks."""
    return executor_class(name)(config=dict(options))
