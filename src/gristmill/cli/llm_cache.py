"""``gristmill llm-cache``: the stored answers of language models."""

from __future__ import annotations

import os

from gristmill.cli.target import UsageError
from gristmill.llm.cache import FILE, RequestCache
from gristmill.llm.errors import Unusable
from gristmill.metrics.format import size
from gristmill.stages.text.llm.stage import IN_OUTPUT

_DAY_S = 86400.0


def llm_cache(folder: str, max_size: int | None, older_than_days: float | None) -> list[str]:
    """Prune a cache if a limit is given. Return the lines to print."""
    places = [folder, os.path.join(folder, IN_OUTPUT)]
    place = next((one for one in places if os.path.isfile(os.path.join(one, FILE))), None)
    if place is None:
        raise UsageError(f"{folder} has no request cache: neither it nor its {IN_OUTPUT} holds {FILE}.")
    try:
        cache = RequestCache(place)
    except Unusable as error:
        raise UsageError(str(error)) from None
    try:
        removed = cache.prune(max_size, None if older_than_days is None else older_than_days * _DAY_S)
        state = cache.state()
    finally:
        cache.close()
    lines = [f"{cache.path}: {state.answers:,} answers, {size(state.size)}"]
    if max_size is not None or older_than_days is not None:
        lines.insert(0, f"removed {removed:,} answers")
    spent = f"{state.tokens:,} tokens" + (f", cost {state.cost:.2f}" if state.cost else "")
    return [*lines, f"all calls so far: {spent}"]
