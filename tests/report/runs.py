"""Small inputs, and commands that run on them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gristmill import fast_json

WORDS = ("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not", "are")


def text_of(random_: random.Random, words: int) -> str:
    return " ".join(random_.choice(WORDS) + random_.choice(("", "s", "ly", "ing")) for _ in range(words))


def write_documents(folder: Path, documents: Iterable[dict[str, Any]], files: int = 2) -> Path:
    """Write documents as JSONL into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(one) + "\n" for one in documents]
    for number in range(files):
        (folder / f"in-{number}.jsonl").write_text("".join(lines[number::files]))
    return folder


def record_of(output: Path) -> dict[str, Any]:
    """Return the report.json of an output."""
    found: dict[str, Any] = fast_json.loads((output / "_gristmill" / "report.json").read_bytes())
    return found


def page_of(output: Path) -> Path:
    return output / "_gristmill" / "report.html"


def command(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run gristmill in a folder."""
    line = [sys.executable, "-m", "gristmill.cli.main", *arguments]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=300, env=environment(), **options)


def start(folder: Path, arguments: Sequence[str]) -> subprocess.Popen[str]:
    """Start gristmill in a folder, in a group of its own."""
    line = [sys.executable, "-m", "gristmill.cli.main", *arguments]
    return subprocess.Popen(
        line,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment(),
    )


def environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "100"}
