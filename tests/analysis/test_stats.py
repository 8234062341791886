"""Distributions of documents, against what Python counts."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from gristmill.analysis.stats import statistics_of
from gristmill.cli.main import main
from tests.scores.runs import corpus, run


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    return corpus(tmp_path_factory.mktemp("stats") / "in", random.Random(seed))


def documents(source: Path) -> list[dict]:
    lines = [line for path in sorted(source.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.endswith("}")]


def test_numbers_and_values(source):
    found = statistics_of(str(source), fields=["n", "id", "missing"])
    every = documents(source)
    group = found.groups[""]
    assert group.documents == len(every) and found.errored == 3
    for name, count in (
        ("characters", lambda one: len(one["text"])),
        ("words", lambda one: len(one["text"].split())),
        ("bytes", lambda one: len(one["text"].encode())),
        ("n", lambda one: one["n"]),
    ):
        values = sorted(map(count, every))
        numbers = group.numbers[name]
        assert (numbers.count, numbers.least, numbers.most) == (len(values), values[0], values[-1])
        assert numbers.mean == pytest.approx(sum(values) / len(values))
        assert sum(numbers.linear(16).counts) == len(values)
    domains = Counter(one["url"].split("/")[2] for one in every)
    assert dict(group.values["domain"].most_common(99)) == domains
    assert group.numbers["missing"].missing == len(every)


def test_by_field_and_by_file(source):
    every = documents(source)
    by_url = statistics_of(str(source), by="url")
    assert {name: one.documents for name, one in by_url.groups.items()} == Counter(one["url"] for one in every)
    by_file = statistics_of(str(source), by="file")
    assert sorted(name.rpartition("/")[2] for name in by_file.groups) == ["0.jsonl", "1.jsonl", "2.jsonl"]


def test_the_command(source, tmp_path, capsys):
    out = tmp_path / "out"
    run(source, out)
    page = tmp_path / "page.html"
    assert main(["stats", str(out), "--html", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "gopher-quality.word_count" in shown and "<- 10" in shown and "domain:" in shown
    html = page.read_text()
    assert "<svg" in html and 'class="mark"' in html and "http-equiv" not in html and "<script" not in html
    assert main(["stats", str(source), "--json", "--field", "n"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["groups"][0]["numbers"]["n"]["count"] == len(documents(source))
    assert main(["stats", str(tmp_path / "nothing")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_hostile_values_are_escaped(tmp_path, capsys):
    file = tmp_path / "in.jsonl"
    record = {"text": "a b", "url": "https://x.org", "kind": "<script>alert(1)</script>\x1b[2J\u202e"}
    file.write_text(json.dumps(record) + "\n")
    assert main(["stats", str(file), "--field", "kind", "--by", "kind", "--html", str(tmp_path / "p.html")]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\u202e" not in shown and "alert(1)" in shown
    assert "<script>" not in (tmp_path / "p.html").read_text()


def test_without_documents_the_field_is_named(tmp_path, capsys):
    file = tmp_path / "in.jsonl"
    file.write_text('{"body": "a"}\n')
    assert main(["stats", str(file)]) == 2
    assert "text" in capsys.readouterr().err
