"""Pages in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.browser import chromium  # noqa: F401  # a fixture
from tests.dashboard.browsing import Visitor


@pytest.fixture
def visit(chromium: Any) -> Iterator[Any]:  # noqa: F811
    """Open a page, and check when the test ends that it asked no other server and reported no error."""
    visitors: list[Visitor] = []

    def open_one(url: str, **options: Any) -> Visitor:
        visitors.append(Visitor(chromium, url, **options))
        return visitors[-1]

    yield open_one
    for visitor in visitors:
        visitor.check_and_close()
