"""Histograms and examples: from excluded documents, and from stored scores of kept and dropped ones."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from tests.report.runs import record_of, text_of, write_documents

from gristmill import Pipeline
from gristmill.report.build import rebuilt
from gristmill.report.examples import histogram
from gristmill.stages.text.filters import MeanWordLengthFilter, ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter, ParquetWriter


def run(folder: Path, writer: object, count: int = 400) -> dict[str, str]:
    random_ = random.Random(4)
    documents = [{"id": f"d{i}", "text": text_of(random_, random_.randrange(1, 60))} for i in range(count)]
    write_documents(folder / "in", documents, files=4)
    filters = ScoreFilter([WordCountFilter(30), MeanWordLengthFilter(1, 4.2)])
    Pipeline("p", stages=[JsonlReader(str(folder / "in")), filters, writer]).run(report=True)
    return {one["id"]: one["text"] for one in documents}


@pytest.mark.parametrize("writer", [JsonlWriter, ParquetWriter])
def test_a_short_run_shows_dropped_documents_nearest_to_the_threshold(tmp_path, writer):
    texts = run(tmp_path, writer(str(tmp_path / "out")))
    rules = {rule["rule"]: rule for rule in record_of(tmp_path / "out")["excluded"]["rules"]}
    found = rules["word_count"]
    words = sorted((len(text.split()) for text in texts.values() if len(text.split()) < 30), reverse=True)
    assert [example["score"] for example in found["dropped"]["examples"]] == words[:3]
    for example in found["dropped"]["examples"]:
        assert len(texts[example["id"]].split()) == example["score"]
    assert sum(found["histogram"]["dropped"]) == len(words)
    assert not any(found["histogram"]["kept"]) and not found["histogram"]["is_of_all"]


def test_a_rebuilt_report_shows_both_sides_of_each_threshold(tmp_path):
    texts = run(tmp_path, JsonlWriter(str(tmp_path / "out")))
    data, page = rebuilt(str(tmp_path / "out"))
    found = {rule["rule"]: rule for rule in data["excluded"]["rules"]}
    counts = sorted(len(text.split()) for text in texts.values())
    dropped = [n for n in counts if n < 30]
    shown = found["word_count"]["histogram"]
    assert shown["is_of_all"]
    assert (sum(shown["dropped"]), sum(shown["kept"])) == (len(dropped), len(counts) - len(dropped))
    kept = found["word_count"]["kept"]["examples"]
    assert [example["score"] for example in kept] == [n for n in counts if n >= 30][:3]
    assert all(len(example["text"].split()) == example["score"] for example in kept if example["characters"] <= 500)
    # the second rule has scores of those documents only that the first one kept
    second = found["mean_word_length"]["histogram"]
    assert sum(second["dropped"]) + sum(second["kept"]) == len(counts) - len(dropped)
    assert sum(second["kept"]) == data["documents"]["kept"]
    assert b"<title>below 30 dropped</title>" in page


def test_without_stored_scores_there_are_those_of_dropped_documents(tmp_path):
    run(tmp_path, JsonlWriter(str(tmp_path / "out"), scores=False))
    data, page = rebuilt(str(tmp_path / "out"))
    assert not any(rule["histogram"]["is_of_all"] for rule in data["excluded"]["rules"] if "histogram" in rule)
    assert b"Scores of dropped documents only" in page


def test_damaged_scores_are_skipped(tmp_path):
    run(tmp_path, JsonlWriter(str(tmp_path / "out")))
    for path in (tmp_path / "out/_gristmill/scores").iterdir():
        path.write_bytes(b"no table")
    data, _ = rebuilt(str(tmp_path / "out"))
    assert sum(rule["dropped"]["read"] for rule in data["excluded"]["rules"]) > 0


def test_a_histogram_counts_all_scores_and_reaches_the_threshold():
    kept, dropped = np.arange(50.0, 150.0), np.array([1e9, *np.arange(0.0, 50.0)])
    found = histogram(kept, dropped, [50, 100_000])
    assert (sum(found["kept"]), sum(found["dropped"])) == (100, 51)
    assert found["low"] <= 1 and found["high"] < 200  # one score far away does not hide the others
    near = histogram(np.array([60.0, 61.0]), np.zeros(0), [59.5])
    assert near["low"] == 59.5
    assert json.dumps(found)
