"""NumPy, imported at its first use. A run is planned without it, and its workers start earlier."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
else:

    class _NumPy:
        def __getattr__(self, name: str) -> Any:
            import numpy

            value = self.__dict__[name] = getattr(numpy, name)
            return value

    np = _NumPy()

Array: TypeAlias = "np.ndarray[Any, Any]"


def names_of(module: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module whose names are those of another one, imported when the first is used."""
    return lambda name: getattr(import_module(module), name)


def names_in(modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module whose names are in other modules, each imported when its name is used."""

    def found(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"there is no {name!r} here")
        return getattr(import_module(modules[name]), name)

    return found


__all__ = ["Array", "names_in", "names_of", "np"]
