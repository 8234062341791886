"""Small corpora and a way to look at what a run has written."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

WORDS = "the of and a to in is that for mill grain flour stone wheel water sack bran sieve".split()


def document(rng: random.Random, number: int) -> dict[str, object]:
    length = rng.choice([3, 20, 60, 200])
    return {"id": f"doc-{number}", "text": " ".join(rng.choice(WORDS) for _ in range(length)), "n": number}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three files, 600 documents, one line in a hundred malformed."""
    rng = random.Random(5)
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a", "b", "c"):
        lines = [json.dumps(document(rng, i)) for i in range(200)]
        lines[50] = '{"id": "broken'
        lines[150] = '{"id": "textless"}'
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def written(folder: Path) -> dict[str, bytes]:
    """All that a run leaves but its log, by relative path."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "_gristmill" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
