"""A real browser for tests: started once in a process, since Playwright cannot be started twice in a thread."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@functools.cache
def browser() -> Any:
    """Chromium without a window: that of the system, or the one that GRISTMILL_CHROMIUM names."""
    path = os.environ.get("GRISTMILL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no Chromium: install it (apt-get install chromium), or name it in GRISTMILL_CHROMIUM")
    from playwright.sync_api import sync_playwright

    playwright = sync_playwright().start()
    atexit.register(playwright.stop)
    return playwright.chromium.launch(executable_path=path, args=list(FLAGS))
