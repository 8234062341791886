"""NumPy, imported when it is first used: who only plans a run does without it, and starts workers the sooner."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _NumPy:
        def __getattr__(self, name: str) -> Any:
            import numpy

            value = self.__dict__[name] = getattr(numpy, name)
            return value

    np = _NumPy()


def names_of(module: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module whose names are those of another one, imported when the first is used."""
    return lambda name: getattr(import_module(module), name)


__all__ = ["names_of", "np"]
