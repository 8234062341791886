"""Write docs/images/live-view.svg: the live view of examples/balance.py, as a terminal shows it in the middle of a run.

Needs tmux, which plays the terminal.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "live-view.svg"
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


def main() -> None:
    command = f"env LC_ALL=C.UTF-8 TERM=xterm-256color {shlex.quote(sys.executable)} examples/balance.py --view live"
    shown = screen_of(f"cd {shlex.quote(str(ROOT))} && {command}", SECONDS).rstrip()
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(shown), soft_wrap=True)
    picture = console.export_svg(title="python examples/balance.py", unique_id="live")
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)  # no fonts from the web
    picture = re.sub(r"font-family: ?Fira Code[^;]*;", f"font-family: {FONT};", picture)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture, encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
