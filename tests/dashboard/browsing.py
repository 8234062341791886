"""A visitor of a live page: what it sees, asks for, and reports."""

from __future__ import annotations

from typing import Any

from tests.dashboard.runs import wait_until

STEP = ".step[data-step='{}']"


class Visitor:
    """One tab."""

    def __init__(self, chromium: Any, url: str, width: int = 1280, height: int = 900, **options: Any) -> None:
        self.url = url
        self.context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.may_lose_server = False
        """Failed requests are expected once the server is gone."""
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(f"page: {error}"))
        self.page.on("console", self._note)
        self.page.goto(url)

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text}")

    def text(self, selector: str) -> str:
        """The text of an element as the visitor sees it; empty if it is hidden or not there."""
        element = self.page.query_selector(selector)
        return element.inner_text() if element is not None and element.is_visible() else ""

    def figure(self, step: int, label: str) -> str:
        """A figure in the card of a step."""
        rows = self.page.query_selector_all(f"{STEP.format(step)} .row")
        found = [row.query_selector(".value").inner_text() for row in rows if row.inner_text().startswith(label)]
        return found[0] if found else ""

    def items(self, step: int) -> int:
        """The documents or tasks that came out of the first stage of a step."""
        words = self.text(f"{STEP.format(step)} .counts").split(" · ")
        return next((int(part.split()[0].replace(",", "")) for part in words if part.endswith(" out")), 0)

    def bottleneck(self) -> int | None:
        marked = self.page.query_selector_all(".step[data-bottleneck='true']")
        assert len(marked) <= 1
        return int(marked[0].get_attribute("data-step")) if marked else None

    def wait_for(self, condition: Any, what: str = "") -> Any:
        def now() -> Any:
            self.page.wait_for_timeout(50)  # lets the browser's events in
            return condition()

        return wait_until(now, what)

    def wait_for_status(self, status: str) -> None:
        self.wait_for(lambda: self.text("#status") == status, f"status {status}, now {self.text('#status')}")

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def check_and_close(self) -> None:
        errors = [e for e in self.errors if not (self.may_lose_server and "net::ERR_" in e)]
        base = self.url.partition("?")[0]
        others = [url for url in self.requests if not url.startswith(base)]
        self.context.close()
        assert errors == [], errors
        assert others == [], others
        assert len(self.requests) >= 10, "the page was loaded"
