"""Pictures of the live page of a run, for docs/images/: `python scripts/make_pictures.py page`. Needs Chromium.

The run is real: docstrings of gristmill, many times over, Gopher's rules, and two stages that only take time.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.pipeline.monitoring import DashboardOptions
from gristmill.stages.core import ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.stages.text.modifiers import Modify, NewlineNormalizer
from gristmill.stages.text.recipes import recipe
from gristmill.tasks import DocumentBatch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
SHOTS = (("light", 1440, 1000, "wide"), ("dark", 1440, 1000, "wide"), ("light", 390, 844, "narrow"))
PORT = 8391
DOCUMENTS = 18_000
BLOCKS = 180
AT_S = 18


class Model(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Takes the time of a model; fails on documents with a word."""

    resources = Resources(gpus=1)

    def __init__(self, name: str, seconds: float, fails_on: str = "") -> None:
        self.name = name
        self.seconds = seconds
        self.fails_on = fails_on

    def process(self, task: DocumentBatch) -> DocumentBatch:
        time.sleep(self.seconds)
        if self.fails_on and self.fails_on in "".join(task.to_pyarrow().column("text").to_pylist()):
            raise ValueError(f"the text holds {self.fails_on!r}, which the tokenizer cannot encode")
        return task


def corpus(folder: Path) -> None:
    from curate import docstrings

    package = ROOT / "src" / "gristmill"
    found = [(name, text) for path in sorted(package.rglob("*.py")) for name, text in docstrings(path)]
    found = [(name.removeprefix(f"{package}/"), text) for name, text in found]
    lines = (
        json.dumps({"id": f"{found[n % len(found)][0]}#{n}", "text": found[n % len(found)][1]})
        for n in range(DOCUMENTS)
    )
    folder.mkdir()
    (folder / "docs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


@contextmanager
def run_of(folder: Path) -> Iterator[str]:
    """Run the pipeline, and yield the address of its page."""
    before = Path.cwd()
    source = folder / "corpus"
    corpus(source)
    size = (source / "docs.jsonl").stat().st_size
    stages: list[Any] = [
        JsonlReader(str(source), blocksize=size // BLOCKS + 1),
        Modify(NewlineNormalizer()),
        recipe("gopher-quality", set={"word_count.min_words": 15}),
        Model("classify", 0.9),
        Model("embed", 0.35, fails_on="half of a surrogate"),
        JsonlWriter("curated"),
    ]
    executor = LocalExecutor({"num_cpus": 9, "num_gpus": 7, "view": "lines", "ignore_failures": True})
    options = DashboardOptions(port=PORT)
    os.chdir(folder)  # so that the page names the output without the place of a temporary folder
    thread = threading.Thread(target=lambda: Pipeline("curate-docs", stages=stages).run(executor, dashboard=options))
    thread.start()
    time.sleep(1)
    try:
        yield f"http://127.0.0.1:{PORT}/"
    finally:
        thread.join()
        os.chdir(before)


def take(images: Path) -> None:
    """Write the pictures: the page, and samples of a stage."""
    from playwright.sync_api import sync_playwright

    images = images.resolve()
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(FLAGS))
        with run_of(Path(place)) as url:
            pages = []
            for scheme, width, height, kind in SHOTS:
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
                page = context.new_page()
                page.goto(url)
                pages.append((page, f"dashboard-{scheme}-{kind}.png"))
            page.wait_for_timeout(1000)
            while page.evaluate("fetch('state.json').then(r => r.json()).then(s => s.now ? s.now.at_s : 0)") < AT_S:
                page.wait_for_timeout(500)
            for page, name in pages:
                clip = {"x": 0, "y": 0, "width": 390, "height": 1900} if "narrow" in name else None
                page.screenshot(path=images / name, full_page=True, clip=clip)
            page = pages[0][0]
            page.get_by_role("button", name="Samples of documents at gopher-quality").click()
            page.wait_for_selector("#samples-dropped li")
            page.wait_for_timeout(300)
            page.screenshot(path=images / "dashboard-samples.png")
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
