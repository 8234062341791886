"""Names by which configuration files know stages, filters and modifiers, and the arguments that made them."""

from __future__ import annotations

import functools
import inspect
from typing import Any, TypeVar

C = TypeVar("C", bound=type)

REGISTERED: dict[str, type] = {}


def register(cls: C) -> C:
    """Make a class known by its name, and have its instances remember the arguments they were made with.

    Arguments must be plain values (numbers, text, lists, mappings) or instances of registered classes: only then can
    a pipeline be written as YAML.
    """
    name = cls.__name__
    if name in REGISTERED and REGISTERED[name].__qualname__ != cls.__qualname__:
        raise ValueError(f"{name!r} is registered already, by {REGISTERED[name].__module__}")
    REGISTERED[name] = cls
    init = cls.__init__  # type: ignore[misc]  # the class's own constructor is what is wrapped
    signature = inspect.signature(init)

    @functools.wraps(init)
    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is cls:
            bound = signature.bind(self, *args, **kwargs)
            given = dict(list(bound.arguments.items())[1:])
            self.__dict__["_arguments"] = given
        init(self, *args, **kwargs)

    cls.__init__ = remember  # type: ignore[misc]
    return cls


def arguments_of(made: Any) -> dict[str, Any] | None:
    """The arguments that an instance of a registered class was made with; None for any other."""
    if REGISTERED.get(type(made).__name__) is not type(made):
        return None
    arguments: dict[str, Any] | None = made.__dict__.get("_arguments")
    return arguments
