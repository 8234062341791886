"""Videos that are made once for all tests of a process."""

from __future__ import annotations

import functools
from typing import Any

import pytest


@pytest.fixture(scope="session")
def video() -> Any:
    """`tests.videos.corpus.video`, which makes the same video once."""
    pytest.importorskip("av")
    from tests.videos import corpus

    made: dict[str, bytes] = {}

    @functools.wraps(corpus.video)
    def once(*args: Any, **kwargs: Any) -> bytes:
        key = repr((args, sorted(kwargs.items())))
        if key not in made:
            made[key] = corpus.video(*args, **kwargs)
        return made[key]

    return once
