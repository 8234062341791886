"""What a user gives as a filter, made one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from gristmill.stages.text.filters.document_filter import DocumentFilter

Filters = DocumentFilter | Sequence[DocumentFilter]


def _name_of(function: Any) -> str:
    """The name of a function, as the reason for which it drops documents; of a lambda, where it is."""
    name: str = getattr(function, "__name__", "function")
    if name != "<lambda>":
        return name
    code = function.__code__
    return f"lambda at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"


class ByFunction(DocumentFilter, builtin=True):
    """A function of the text or of the score in a filter's clothes."""

    def __init__(self, score: Callable[[str], Any] | None = None, keep: Callable[[Any], bool] | None = None) -> None:
        self._score = score
        self._keep = keep
        self.name = _name_of(score or keep)

    def made_of(self) -> Sequence[object]:
        return [part for part in (self._score, self._keep) if part is not None]

    def score_document(self, text: str) -> Any:
        assert self._score is not None
        return self._score(text)

    def keep_document(self, score: Any) -> bool:
        return self._keep is None or self._keep(score)


class ByMethods(DocumentFilter, builtin=True):
    """An object with ``score_document`` and ``keep_document`` that is no `DocumentFilter`: another library's filter."""

    def __init__(self, given: Any) -> None:
        self._given = given
        name = getattr(given, "name", "")
        self.name = name if isinstance(name, str) and name else type(given).__name__

    def made_of(self) -> Sequence[object]:
        return [self._given]

    def score_document(self, text: str) -> Any:
        return self._given.score_document(text)

    def keep_document(self, score: Any) -> bool:
        kept: bool = self._given.keep_document(score)
        return kept


def as_filters(given: Any, function: str = "") -> list[DocumentFilter]:
    """A filter or a list of them, as a list. With ``function`` "score" or "keep" plain functions will do."""
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
    if all(callable(getattr(one, method, None)) for method in ("score_document", "keep_document")):
        return ByMethods(one)
    if function and callable(one):
        return ByFunction(**{function: one})
    wanted = "a DocumentFilter, or a function" if function else "a DocumentFilter"
    raise TypeError(f"{one!r} is not a filter: give {wanted}.")
