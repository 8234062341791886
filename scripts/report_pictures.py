"""Make the pictures of reports in docs/images/ again: `python scripts/report_pictures.py`. Needs Chromium.

Two runs: the README's pipeline over the corpus of `gristmill init`, and three stages of unequal speed that share seven
logical GPUs, as in examples/balance.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gristmill import DocumentBatch, Pipeline, ProcessingStage, Resources
from gristmill.backends.local import LocalExecutor
from gristmill.stages.text.io import JsonlReader, JsonlWriter

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
FLAGS += "--disable-component-update --disable-sync --hide-scrollbars"
CHROMIUM = os.environ.get("GRISTMILL_CHROMIUM", "/usr/bin/chromium")
CLEAN = """\
name: clean
stages:
  - JsonlReader: {file_paths: curate/input/}
  - recipe: gopher-quality
  - ScoreFilter: {filter_obj: {UrlsFilter: {max_url_to_text_ratio: 0.1}}}
  - FuzzyDeduplication: {survivor: longest}
  - Modify: {modifier_fn: [NewlineNormalizer, PiiRedactor]}
  - JsonlWriter: {path: output/}
"""
SECONDS = {"caption": 0.25, "embed": 1.0, "classify": 0.5}
BATCHES = 160


class Sleeps(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Occupies a logical GPU for some time."""

    resources = Resources(gpus=1)

    def __init__(self, name: str) -> None:
        self.name = name

    def process(self, task: DocumentBatch) -> DocumentBatch:
        time.sleep(SECONDS[self.name])
        return task


def gristmill(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "gristmill.cli.main", *arguments], cwd=folder, check=True)


def text_run(folder: Path) -> Path:
    gristmill(folder, "init", "curate")
    (folder / "clean.yaml").write_text(CLEAN)
    gristmill(folder, "run", "clean.yaml")
    gristmill(folder, "report", "output")
    return folder / "output/_gristmill/report.html"


def balanced_run(folder: Path) -> Path:
    (folder / "clips").mkdir()
    for number in range(BATCHES):
        lines = [json.dumps({"id": f"{number}-{i}", "text": "a clip"}) + "\n" for i in range(50)]
        (folder / f"clips/{number:04}.jsonl").write_text("".join(lines))
    stages = [JsonlReader("clips", files_per_partition=1), *map(Sleeps, SECONDS), JsonlWriter("balanced")]
    os.chdir(folder)
    executor = LocalExecutor(config={"num_cpus": 8, "num_gpus": 7, "view": "off"})
    Pipeline("balance", "three stages of unequal speed on seven GPUs", stages).run(executor, report=True)
    return folder / "balanced/_gristmill/report.html"


def opened(browser: Any, path: Path, width: int, height: int, scheme: str) -> Any:
    """Open a page, with /data for the temporary folder in which it was made."""
    shown = path.with_name("shown.html")
    shown.write_text(path.read_text("utf-8").replace(os.path.realpath(path.parents[2]), "/data"), "utf-8")
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(shown.as_uri())
    return page


def main() -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        text, balanced = text_run(Path(place)), balanced_run(Path(place))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        opened(browser, text, 1100, 1180, "light").screenshot(path=IMAGES / "report-light-wide.png")
        opened(browser, text, 400, 900, "light").screenshot(path=IMAGES / "report-light-narrow.png")
        charts = opened(browser, balanced, 1100, 900, "dark")
        charts.locator("#time").screenshot(path=IMAGES / "report-dark-wide.png")
        scores = opened(browser, text, 1100, 900, "light")
        scores.evaluate("document.querySelector('#scores details').open = true")
        scores.screenshot(path=IMAGES / "report-scores.png", full_page=True, clip=clip_of(scores))
        scores.pdf(path=str(Path(place) / "report.pdf"))
        browser.close()


def clip_of(page: Any) -> dict[str, float]:
    """Return the place of the scores of the first rule."""
    top, bottom = page.evaluate(
        "[document.querySelector('#scores').offsetTop, document.querySelectorAll('#scores h3')[1].offsetTop]"
    )
    return {"x": 0, "y": top, "width": 1100, "height": bottom - top}


if __name__ == "__main__":
    main()
