"""Make ``predict`` of the package fasttext-predict take a list of texts, as ``predict`` of fastText does.

`gristmill[text]` installs fasttext-predict, since it has no dependencies and works with NumPy 2. Its ``predict`` of a
list returns labels without probabilities, and raises an error for a list of one text. Users' filters may call it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from gristmill.lazy import np

MODULE = "fasttext.FastText"


def install() -> None:
    """Complete the module now if it is imported, or when it is imported: few runs need it, and importing it is slow."""
    if MODULE in sys.modules:
        complete(sys.modules[MODULE])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def complete(module: Any) -> None:
    """Let ``predict`` take lists, unless this is fastText itself, which can also train models."""
    of_one = module._FastText.predict
    if "train_supervised" in vars(module) or inspect.unwrap(of_one) is not of_one:
        return

    @wraps(of_one)
    def predict(
        self: Any, text: str | list[str], k: int = 1, threshold: float = 0.0, on_unicode_error: str = "strict"
    ) -> Any:
        if not isinstance(text, list):
            return of_one(self, text, k, threshold, on_unicode_error)
        results = [of_one(self, line, k, threshold, on_unicode_error) for line in text]
        return [list(labels) for labels, _ in results], [np.array(scores, np.float32) for _, scores in results]

    module._FastText.predict = predict


class _Finder(MetaPathFinder):
    """Finds the module as usual, and completes it once it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_complete(module: ModuleType) -> None:
            load(module)
            complete(module)

        spec.loader.exec_module = load_and_complete  # type: ignore[method-assign]
        return spec
