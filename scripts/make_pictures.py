"""Make the pictures in docs/images/ again: `python scripts/make_pictures.py [live] [site] [page]`.

- live: live-view.svg, the live view of examples/balance.py during a run. Needs tmux as the terminal.
- site: pages of the documentation site, light and dark, wide and narrow. Needs Chromium, and the site (`make docs`).
- page: the live page of a run, and samples of documents. Needs Chromium.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from page_pictures import take
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
SITE = ROOT / "build" / "site"
SCREENSHOTS = (
    ("index.html", "light", 1280, 900),
    ("index.html", "light", 500, 900),
    ("guides/dedup.html", "light", 1280, 900),
    ("guides/dedup.html", "dark", 500, 900),
    ("reference/stages.html", "dark", 1280, 900),
    ("reference/stages.html", "light", 500, 900),
)
COLUMNS, ROWS = 96, 24
SECONDS = 24
FONT = "ui-monospace, 'Cascadia Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace"


def tmux(*arguments: str) -> str:
    return subprocess.run(
        ["tmux", "-L", "gristmill-picture", *arguments], check=True, capture_output=True, text=True
    ).stdout


def screen_of(command: str, seconds: float) -> str:
    """Return what a terminal shows after some seconds of a command, with escapes for its colours."""
    tmux("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), command)
    try:
        time.sleep(seconds)
        return tmux("capture-pane", "-e", "-p")
    finally:
        tmux("kill-server")


def live_view() -> None:
    command = f"env LC_ALL=C.UTF-8 TERM=xterm-256color {shlex.quote(sys.executable)} examples/balance.py --view live"
    shown = screen_of(f"cd {shlex.quote(str(ROOT))} && {command}", SECONDS).rstrip()
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(shown), soft_wrap=True)
    picture = console.export_svg(title="python examples/balance.py", unique_id="live")
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)  # no fonts from the web
    picture = re.sub(r"font-family: ?Fira Code[^;]*;", f"font-family: {FONT};", picture)
    (IMAGES / "live-view.svg").write_text(picture, encoding="utf-8")


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback and yield its URL: pages that are opened as files have no search."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def site() -> None:
    with served(SITE) as url:
        screenshots(url)


def screenshots(url: str) -> None:
    for page, theme, width, height in SCREENSHOTS:
        kind = f"{theme}-{'wide' if width > 800 else 'narrow'}"
        target = IMAGES / f"site-{page.partition('.')[0].replace('/', '-')}-{kind}.png"
        with tempfile.TemporaryDirectory() as profile:
            command = [
                *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
                *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
                *("--hide-scrollbars", "--virtual-time-budget=3000", f"--user-data-dir={profile}"),
                f"--blink-settings=preferredColorScheme={int(theme == 'light')}",
                *(f"--window-size={width},{height}", f"--screenshot={target}", f"{url}/{page}"),
            ]
            subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    makers = {"live": live_view, "site": site, "page": lambda: take(IMAGES)}
    for name in sys.argv[1:] or makers:
        makers[name]()


if __name__ == "__main__":
    main()
