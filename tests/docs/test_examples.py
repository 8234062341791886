"""The examples do what the pages say of them."""

import importlib.util
import json
import re
from pathlib import Path

from gristmill.scheduling.simulator import simulate

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


def test_the_hash_in_the_simulators_page_is_the_one_that_comes_out():
    shown = re.search(r"\((\d+), '([0-9a-f]{32})'\)", (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8"))
    result = simulate(f"{ROOT / 'benchmarks' / 'rig' / 'loads.json'}#video_10min", seed=3)
    assert shown and (int(shown[1]), shown[2]) == (round(result.makespan_s), result.event_hash)
