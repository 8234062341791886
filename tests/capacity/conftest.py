"""A corpus and pipelines for tests of the planner."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

WORDS = ["the", "of", "and", "to", "a", "in", "that", "is", "was", "for", "on", "with", "as", "his", "they", "at"]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A profile store of this test's own."""
    path = tmp_path / "data" / "profiles.jsonl"
    monkeypatch.setenv("GRISTMILL_PROFILE_STORE", str(path))
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three files of documents; one document in ten is a copy."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    folder = tmp_path / "in"
    folder.mkdir()
    texts: list[str] = []
    for part in range(3):
        lines = []
        for i in range(800):
            copied = texts and draw.random() < 0.1
            text = draw.choice(texts) if copied else " ".join(draw.choices(WORDS, k=draw.randint(60, 300)))
            texts.append(text)
            lines.append(json.dumps({"id": f"{part}-{i}", "text": text}))
        (folder / f"part-{part}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def pipeline_file(tmp_path: Path, corpus: Path) -> Callable[..., Path]:
    """Writes a pipeline with these stages from the corpus to ``tmp_path/out``."""

    def write(*stages: str, blocksize: str = "64KB") -> Path:
        lines = "".join(f"  - {stage}\n" for stage in stages)
        path = tmp_path / "pipeline.yaml"
        path.write_text(
            f"stages:\n  - JsonlReader: {{file_paths: {corpus}, blocksize: {blocksize}}}\n{lines}"
            f"  - JsonlWriter: {{path: {tmp_path / 'out'}}}\n"
        )
        return path

    return write
