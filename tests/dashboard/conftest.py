"""Pages in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.browser import browser
from tests.dashboard.browsing import Visitor


@pytest.fixture
def visit() -> Iterator[Any]:
    """Open a page, and check when the test ends that it asked no other server and reported no error."""
    visitors: list[Visitor] = []

    def open_one(url: str, **options: Any) -> Visitor:
        visitors.append(Visitor(browser(), url, **options))
        return visitors[-1]

    yield open_one
    for visitor in visitors:
        visitor.check_and_close()
