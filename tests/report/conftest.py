"""Pages opened from disk in a real browser, and outputs of real runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser import chromium  # noqa: F401  # a fixture


class Opened:
    """A page in a browser, with all that it asked for and all that it complained about."""

    def __init__(self, context: Any, path: Path) -> None:
        self.requests: list[str] = []
        self.messages: list[str] = []
        self.context = context
        self.page = context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.messages.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.url = path.resolve().as_uri()
        self.page.goto(self.url)

    def text(self, selector: str = "body") -> str:
        return str(self.page.inner_text(selector))


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Opened]]:  # noqa: F811
    """Open a file in a browser. When the test ends, it must have asked for nothing else and reported no error."""
    opened: list[Opened] = []

    def open_one(path: Path | str, width: int = 1100, scheme: str = "light") -> Opened:
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        opened.append(Opened(context, Path(path)))
        return opened[-1]

    yield open_one
    for one in opened:
        one.context.close()
    for one in opened:
        assert one.requests == [one.url]
        assert one.messages == []
