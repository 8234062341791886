"""A real browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from tests.dashboard.browsing import Visitor

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATH = os.environ.get("GRISTMILL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Chromium without a window: that of the system, or the one that GRISTMILL_CHROMIUM names."""
    if PATH is None:
        pytest.skip("there is no Chromium: install it (apt-get install chromium), or name it in GRISTMILL_CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PATH, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Any]:
    """Open a page, and check when the test ends that it asked no other server and reported no error."""
    visitors: list[Visitor] = []

    def open_one(url: str, **options: Any) -> Visitor:
        visitors.append(Visitor(chromium, url, **options))
        return visitors[-1]

    yield open_one
    for visitor in visitors:
        visitor.check_and_close()
