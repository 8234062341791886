"""NumPy, imported at its first use. A run is planned without it, and its workers start earlier."""

from __future__ import annotations

from collections.abc import Callable
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


__all__ = ["Array", "names_of", "np"]
