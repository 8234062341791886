"""The examples do what the pages say of them."""

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_corpus_of_the_demo_is_complete(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("curate", ROOT / "examples" / "curate.py")
    assert spec is not None and spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    monkeypatch.setattr(demo, "MOST_DOCUMENTS", 30)
    monkeypatch.setattr(demo, "DOCUMENTS_PER_FILE", 7)
    assert demo.make_corpus(tmp_path / "input") == 30
    lines = [line for path in sorted((tmp_path / "input").iterdir()) for line in path.read_text().splitlines()]
    assert [json.loads(line)["id"] for line in lines] == [f"doc-{n:06}" for n in range(1, 31)]
