"""The parameters of constructors, and their annotations as far as they can be evaluated."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from os import PathLike
from pathlib import PurePath
from typing import Any, Literal, Union, get_args, get_origin

LISTS = (list, tuple, set, frozenset, Sequence, Iterable, Collection, Set)
MAPPINGS = (dict, Mapping)


def parameters(made: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a class or function by name."""
    return dict(inspect.signature(made).parameters)


def hint_of(made: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the evaluated annotation; `Any` if there is none, or if it cannot be evaluated here."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    function = inspect.unwrap(inspect.getattr_static(made, "__init__") if isinstance(made, type) else made)
    is_python = isinstance(function, types.FunctionType)
    scope = function.__globals__ if is_python else vars(sys.modules[made.__module__])
    try:
        return eval(annotation, dict(scope))  # the annotation of a class that is imported already
    except (NameError, AttributeError, TypeError, SyntaxError):  # for example of names that only type checkers import
        return Any


def options(hint: Any) -> list[Any]:
    """The members of a union; of anything else, itself."""
    if type(hint).__name__ == "TypeAliasType":  # `type X = ...`, not before Python 3.12
        return options(hint.__value__)
    if get_origin(hint) in (Union, types.UnionType):
        return [one for member in get_args(hint) for one in options(member)]
    return [hint]


def is_list(hint: Any) -> bool:
    return (get_origin(hint) or hint) in LISTS


def is_mapping(hint: Any) -> bool:
    return (get_origin(hint) or hint) in MAPPINGS


def is_function(hint: Any) -> bool:
    return (get_origin(hint) or hint) is Callable


def is_object(hint: Any) -> bool:
    """Whether the hint is a class whose instances are no plain values."""
    cls = get_origin(hint) or hint
    plain = (bool, int, float, str, bytes, type(None), object, *LISTS, *MAPPINGS, Callable, PathLike)
    return isinstance(cls, type) and cls not in plain and not issubclass(cls, PurePath)


def anything(hint: Any) -> bool:
    """Whether any value fits the hint."""
    if hint is None or hint in (Any, object) or get_origin(hint) is Literal:
        return hint is not None and get_origin(hint) is not Literal
    return not (isinstance(hint, type) or get_origin(hint) is not None)


def words(hint: Any) -> str:
    """Return the hint in words."""
    found: list[str] = []
    for one in options(hint):
        if is_function(one):
            continue
        cls = get_origin(one) or one
        if get_origin(one) is Literal:
            found += [repr(value) for value in get_args(one)]
        elif is_list(one):
            found.append("a list")
        elif is_mapping(one):
            found.append("a mapping")
        elif isinstance(cls, type) and issubclass(cls, PurePath | PathLike):
            found.append("text")
        else:
            plain = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
            name = cls.__name__ if isinstance(cls, type) else str(cls)
            found.append("nothing" if one in (None, type(None)) else plain.get(cls) or f"a {name}")
    found = list(dict.fromkeys(found))
    return " or ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found) or "a function"
