"""The types of tasks that a stage takes and returns, by its annotations."""

from __future__ import annotations

import ast
import collections.abc
import functools
import inspect
import operator
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from gristmill.tasks import Task

TaskType = type[Task[Any]] | types.UnionType
"""A class of tasks, or a union of such classes. `issubclass` takes both."""

SEVERAL = (
    list,
    tuple,
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.Sequence,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)
SEVERAL_NAMES = {name for kind in SEVERAL for name in (kind.__name__, kind.__name__.capitalize())}
WRAPPERS = {"Union", "Optional", "Annotated"}


def task_type(annotation: Any, module: str | None = None) -> TaskType | None:
    """The tasks in ``annotation``, looking into unions, lists and iterators; None when they cannot be known."""
    found = _task_classes(annotation, module)
    return functools.reduce(operator.or_, found) if found else None


def _task_classes(annotation: Any, module: str | None) -> list[type[Task[Any]]] | None:
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        annotation = _evaluate(annotation, getattr(sys.modules.get(module or ""), "__dict__", {}))
    if isinstance(annotation, typing.TypeVar):
        return _task_classes(annotation.__bound__, module)
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        members = [_task_classes(a, module) for a in arguments if a is not types.NoneType]
        return None if None in members else [c for member in members for c in member or ()]
    if origin in SEVERAL or origin is typing.Annotated:
        return _task_classes(arguments[0], module)
    kind = origin or annotation
    return [kind] if isinstance(kind, type) and issubclass(kind, Task) else None


def generic_arguments(cls: type, base: type) -> tuple[Any, ...]:
    """The types that ``cls`` gives for the parameters of ``base``, at any depth; None where it gives none."""
    parameters = getattr(base, "__parameters__", ())
    return tuple(None if argument in parameters else argument for argument in _arguments(cls, base, {}))


def _arguments(cls: type, base: type, bound: dict[Any, Any]) -> tuple[Any, ...]:
    for parent in vars(cls).get("__orig_bases__", cls.__bases__):
        origin = typing.get_origin(parent) or parent
        if not (isinstance(origin, type) and issubclass(origin, base)):
            continue
        arguments = tuple(bound.get(a, a) if isinstance(a, typing.TypeVar) else a for a in typing.get_args(parent))
        if origin is not base:
            parameters = getattr(origin, "__parameters__", ())
            arguments = _arguments(origin, base, dict(zip(parameters, arguments, strict=False)))
        if arguments:
            return arguments
    return ()


def signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of ``function``; what cannot be evaluated in it stays a text or a forward reference."""
    if sys.version_info >= (3, 14):  # there annotations are evaluated when they are looked at
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def parameter_annotation(function: Callable[..., Any]) -> Any:
    """The annotation of the first parameter, or None."""
    found = _signature_or_none(function)
    first = next(iter(found.parameters.values()), None) if found else None
    return _resolve(first.annotation, function) if first else None


def return_annotation(function: Callable[..., Any]) -> Any:
    """The annotation of what ``function`` returns, or None."""
    found = _signature_or_none(function)
    return _resolve(found.return_annotation, function) if found else None


def may_give_several(function: Callable[..., Any]) -> bool:
    """Whether ``function`` is a generator or is annotated to return several tasks."""
    is_generator = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    return is_generator or _means_several(return_annotation(function))


def is_async(function: Callable[..., Any]) -> bool:
    """Whether ``function`` is an ``async def``: a coroutine function or an asynchronous generator."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _means_several(annotation: Any) -> bool:
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        return _text_means_several(annotation)
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(_means_several(a) for a in typing.get_args(annotation))
    if origin is typing.Annotated:
        return _means_several(typing.get_args(annotation)[0])
    return (origin or annotation) in SEVERAL


def _text_means_several(text: str) -> bool:
    try:
        return _tree_means_several(ast.parse(text, mode="eval").body)
    except SyntaxError:
        return False


def _tree_means_several(tree: ast.expr) -> bool:
    match tree:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _tree_means_several(left) or _tree_means_several(right)
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner) if name in WRAPPERS:
            return any(_tree_means_several(t) for t in (inner.elts if isinstance(inner, ast.Tuple) else [inner]))
        case ast.Subscript(value=value):
            return _tree_means_several(value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in SEVERAL_NAMES
        case ast.Constant(value=str() as text):
            return _text_means_several(text)
    return False


def _signature_or_none(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return signature(function)
    except (TypeError, ValueError):  # builtins have none
        return None


def _resolve(annotation: Any, function: Callable[..., Any]) -> Any:
    """``annotation``, evaluated if it is text whose names are known; None if there is none."""
    if annotation is inspect.Parameter.empty:
        return None
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation
    found = _evaluate(annotation, getattr(inspect.unwrap(function), "__globals__", {}))
    return annotation if found is None else found


def _evaluate(text: str, names: dict[str, Any]) -> Any:
    try:
        return eval(text, dict(names))
    except (NameError, AttributeError, TypeError, ValueError, LookupError, SyntaxError):
        # names under TYPE_CHECKING or of an enclosing function: unknown is an answer here
        return None
