"""What a constructor takes: its parameters, and their annotations as far as they can be understood."""

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
    """What the annotation says; `Any` where there is none, or it cannot be evaluated here."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    function = inspect.unwrap(getattr(made, "__init__") if isinstance(made, type) else made)  # noqa: B009  # for mypy
    scope = getattr(function, "__globals__", None) or vars(sys.modules[made.__module__])
    try:
        return eval(annotation, dict(scope))  # the annotation of a class that is imported already
    except (NameError, AttributeError, TypeError, SyntaxError):  # of names that only type checkers import, say
        return Any


def options(hint: Any) -> list[Any]:
    """The members of a union; of anything else, itself."""
    if hasattr(hint, "__value__"):  # `type X = ...`
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
    """Whether instances of a class are wanted that is not one of the plain ones."""
    cls = get_origin(hint) or hint
    plain = (bool, int, float, str, bytes, type(None), object, *LISTS, *MAPPINGS, Callable, PathLike)
    return isinstance(cls, type) and cls not in plain and not issubclass(cls, PurePath)


def anything(hint: Any) -> bool:
    """Whether the hint says nothing that could be checked."""
    if hint is None or hint in (Any, object) or get_origin(hint) is Literal:
        return hint is not None and get_origin(hint) is not Literal
    return not (isinstance(hint, type) or get_origin(hint) is not None)


def words(hint: Any) -> str:
    """The hint for people."""
    said: list[str] = []
    for one in options(hint):
        if is_function(one):
            continue
        cls = get_origin(one) or one
        if get_origin(one) is Literal:
            said += [repr(value) for value in get_args(one)]
        elif is_list(one):
            said.append("a list")
        elif is_mapping(one):
            said.append("a mapping")
        elif isinstance(cls, type) and issubclass(cls, PurePath | PathLike):
            said.append("text")
        else:
            plain = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
            said.append("nothing" if one in (None, type(None)) else plain.get(cls) or f"a {_name(cls)}")
    said = list(dict.fromkeys(said))
    return " or ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said) or "a function"


def _name(cls: Any) -> str:
    return getattr(cls, "__name__", str(cls))
