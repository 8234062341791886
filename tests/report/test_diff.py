"""``gristmill diff``: real runs with different thresholds, compared with what their outputs hold."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from tests.report.runs import command, text_of, write_documents

from gristmill import Pipeline
from gristmill.report.changes import compared, sides
from gristmill.stages.text.filters import MeanWordLengthFilter, ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter


def run(folder: Path, name: str, least: int, most: float = 10.0, source: str = "in", **writer: object) -> Path:
    output = folder / name
    stages = [
        JsonlReader(str(folder / source)),
        ScoreFilter([WordCountFilter(least), MeanWordLengthFilter(1, most)]),
        JsonlWriter(str(output), **writer),
    ]
    Pipeline("p", stages=stages).run(report=True, allow_empty=True)
    return output


def ids(folder: Path) -> set[str]:
    lines = [line for path in folder.glob("part-*.jsonl") for line in path.read_text().splitlines()]
    return {str(json.loads(line).get("id") or json.loads(line)["text"]) for line in lines}


def ids_in(folder: Path, names: str) -> list[str]:
    """The id of each document in some files, as often as it is there."""
    lines = [line for path in folder.glob(f"{names}.jsonl") for line in path.read_text().splitlines()]
    return [str(json.loads(line)["id"]) for line in lines]


def moved(found: dict) -> tuple[int, int]:
    return found["sides"]["dropped_in_b"]["documents"], found["sides"]["dropped_in_a"]["documents"]


def documents(seed: int, count: int = 300) -> list[dict[str, str]]:
    random_ = random.Random(seed)
    return [{"id": f"d{i}", "text": text_of(random_, random_.randrange(1, 60))} for i in range(count)]


@pytest.mark.parametrize("at_once", [7, 8_192])
def test_documents_that_changed_sides_are_those_that_the_outputs_show(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(sides, "AT_ONCE", at_once)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    write_documents(tmp_path / "in", documents(seed))
    a = run(tmp_path, "a", random_.randrange(1, 50), random_.uniform(3, 6))
    b = run(tmp_path, "b", random_.randrange(1, 50), random_.uniform(3, 6))
    kept_a, kept_b = ids(a), ids(b)
    found = compared(str(a), str(b))
    assert found["sides"]["is_direct"]
    assert moved(found) == (len(kept_a - kept_b), len(kept_b - kept_a))
    for key, gone in (("dropped_in_b", kept_a - kept_b), ("dropped_in_a", kept_b - kept_a)):
        for group in found["sides"][key]["groups"]:
            assert len(group["examples"]) == min(3, group["documents"])
            assert {example["id"] for example in group["examples"]} <= gone


def test_runs_over_different_input_are_compared_by_their_outputs(tmp_path):
    made = documents(5, 200)
    write_documents(tmp_path / "in", made[:150])
    write_documents(tmp_path / "other", made[50:])
    a, b = run(tmp_path, "a", 10), run(tmp_path, "b", 40, source="other")
    common = {one["id"] for one in made[50:150]}
    found = compared(str(a), str(b))
    assert not found["sides"]["is_direct"]
    assert moved(found) == (len((ids(a) - ids(b)) & common), 0)
    assert [one["name"] for one in found["input"]] == ["first file", "contents"]


@pytest.mark.parametrize("same_input", [True, False])
def test_of_repeated_ids_as_many_moved_as_the_outputs_show(tmp_path, same_input):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    made = [{**one, "id": f"d{random_.randrange(60)}"} for one in documents(seed)]
    write_documents(tmp_path / "in", made)
    write_documents(tmp_path / "other", made if same_input else made[:-1])
    a, b = run(tmp_path, "a", 1, 5), run(tmp_path, "b", 20, source="in" if same_input else "other")
    kept, gone = ([Counter(ids_in(folder, name)) for folder in (a, b)] for name in ("part-*", "excluded/part-*"))

    def expected(x: int, y: int) -> int:
        return ((gone[y] - gone[x]) & (kept[x] - kept[y])).total()

    found = compared(str(a), str(b))
    assert found["sides"]["is_direct"] == same_input
    assert moved(found) == (expected(0, 1), expected(1, 0))
    groups = [found["sides"][key]["groups"] for key in ("dropped_in_b", "dropped_in_a")]
    examples = [{one["id"] for group in side for one in group["examples"]} for side in groups]
    assert not examples[0] & examples[1]


def test_documents_without_ids_are_compared_by_their_text(tmp_path):
    made = [{"text": one["text"]} for one in documents(6, 120)]
    write_documents(tmp_path / "in", made)
    a, b = run(tmp_path, "a", 10), run(tmp_path, "b", 30)
    found = compared(str(a), str(b))
    texts = {one["text"] for one in made}
    assert len(texts) == 120
    assert moved(found) == (len(ids(a) - ids(b)), 0)
    assert found["sides"]["without_id"] > 0


def test_without_all_dropped_documents_the_answer_is_unknown(tmp_path):
    write_documents(tmp_path / "in", documents(7, 50))
    a, b = run(tmp_path, "a", 10), run(tmp_path, "b", 30, excluded=0.5)
    done = command(tmp_path, "diff", str(a), str(b))
    assert done.returncode == 0, done.stderr
    assert "documents that changed sides: unknown: the writer of B did not keep all dropped documents" in done.stdout


def test_text_and_page_show_what_differs(tmp_path, open_page):
    write_documents(tmp_path / "in", documents(8))
    a, b = run(tmp_path, "a", 10), run(tmp_path, "b", 30)
    done = command(tmp_path, "diff", "a", "b")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "  ScoreFilter filter_obj.WordCountFilter.min_words: 10 -> 30" in lines
    assert "input: the same" in lines and "versions: the same" in lines
    gone = len(ids(a) - ids(b))
    assert f"kept in A, dropped in B: {gone}" in lines and "dropped in A, kept in B: 0" in lines
    assert f"  {gone} by ScoreFilter of B: too few words" in lines
    kept = next(line.split() for line in lines if line.startswith("  kept"))
    assert kept == ["kept", str(len(ids(a))), str(len(ids(b))), str(len(ids(b)) - len(ids(a)))]
    assert any(re.match(r"  wall time, s +[\d.]+ +[\d.]+ +[\d.]+$", line) for line in lines)
    assert command(tmp_path, "diff", "a", "b", "--html", "diff.html").stdout == "diff.html\n"
    opened = open_page(tmp_path / "diff.html")
    assert f"Kept in A, dropped in B: {gone}" in opened.text()
    assert "filter_obj.WordCountFilter.min_words" in opened.text()
    phone = open_page(tmp_path / "diff.html", 360)
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_run_equals_itself(tmp_path):
    write_documents(tmp_path / "in", documents(9, 60))
    a = run(tmp_path, "a", 10)
    found = compared(str(a), str(a))
    assert (found["configuration"], found["input"], found["versions"], moved(found)) == ([], [], [], (0, 0))
    assert all(row["a"] == row["b"] for row in found["documents"])
