"""Make filters of what users pass as filters: functions, and filters of other libraries."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from gristmill.stages.text.filters.document_filter import DocumentFilter

Filters = DocumentFilter | Sequence[DocumentFilter]


@runtime_checkable
class FilterLike(Protocol):
    """A filter of another library. It is known by its attribute ``name`` if that is a text, else by its class."""

    def score_document(self, text: str) -> Any: ...

    def keep_document(self, score: Any) -> bool: ...


@runtime_checkable
class _Named(Protocol):
    name: object


def _name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, as the reason for dropped documents; of a lambda, where it is."""
    if inspect.isfunction(function) and function.__name__ == "<lambda>":
        code = function.__code__
        return f"lambda at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    return function.__name__ if inspect.isroutine(function) else "function"


class ByFunction(DocumentFilter, builtin=True):
    """A function of the text, or of the score, as a filter."""

    def __init__(self, score: Callable[[str], Any] | None = None, keep: Callable[[Any], bool] | None = None) -> None:
        self._functions = [function for function in (score, keep) if function is not None]
        self._score = score
        self._keep = keep
        self.name = _name_of(self._functions[0])

    def made_of(self) -> Sequence[object]:
        return self._functions

    def score_document(self, text: str) -> Any:
        assert self._score is not None
        return self._score(text)

    def keep_document(self, score: Any) -> bool:
        return self._keep is None or self._keep(score)


class ByMethods(DocumentFilter, builtin=True):
    """A `FilterLike` object as a filter."""

    def __init__(self, given: FilterLike) -> None:
        self._given = given
        name = given.name if isinstance(given, _Named) else None
        self.name = name if isinstance(name, str) and name else type(given).__name__

    def made_of(self) -> Sequence[object]:
        return [self._given]

    def score_document(self, text: str) -> Any:
        return self._given.score_document(text)

    def keep_document(self, score: Any) -> bool:
        return self._given.keep_document(score)


def as_filters(given: Any, function: str = "") -> list[DocumentFilter]:
    """Return a filter or a list of filters as a list. With ``function`` "score" or "keep" functions are accepted."""
    several = list(given) if isinstance(given, list | tuple) else [given]
    if not several:
        raise ValueError("there is no filter in the list.")
    return [_as_filter(one, function) for one in several]


def _as_filter(one: Any, function: str) -> DocumentFilter:
    if isinstance(one, type):
        raise TypeError(f"{one.__name__} is a class: give an instance, {one.__name__}(...).")
    if isinstance(one, DocumentFilter):
        one.check(scores=function != "keep", keeps=function != "score")
        return one
    if isinstance(one, FilterLike):
        return ByMethods(one)
    if function and callable(one):
        return ByFunction(**{function: one})
    wanted = "a DocumentFilter, or a function" if function else "a DocumentFilter"
    raise TypeError(f"{one!r} is not a filter: give {wanted}.")
