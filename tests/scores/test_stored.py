"""Scores stored beside the output: what they hold, and that they are part of the ledger's files."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from gristmill.pipeline.verify import verify_output
from gristmill.scores.documents import StoredDocuments
from gristmill.scores.sketch import Distribution
from gristmill.scores.stored import StoredScores
from gristmill.scores.top import TopCounts
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.protocols import Scoring
from gristmill.stages.text.filters import DocumentFilter, ScoreFilter, WordCountFilter
from gristmill.stages.text.filters.document_filter import AtMost
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch
from tests.scores.runs import corpus, funnel, run, stages
from tests.stages.deduplication.corpora import execute


@pytest.fixture
def source(tmp_path: Path) -> Path:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    return corpus(tmp_path / "in", random.Random(seed))


def stored(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "_gristmill/scores").iterdir()}


def test_the_verdict_of_each_document_follows_from_its_scores(source, tmp_path):
    run(source, tmp_path / "out")
    scores = StoredScores(str(tmp_path / "out"))
    pipeline = [stage for stage in stages(source, tmp_path / "out") if isinstance(stage, Scoring)]
    by_stage = dict(zip(dict.fromkeys(rule.stage for rule in scores.rules), pipeline, strict=True))
    kept = dropped = 0
    for table in scores.tables():
        stage, number = table.dropped_by
        alive = np.ones(len(table), dtype=bool)
        for rule in scores.rules:
            filter_, inverted = by_stage[rule.stage].scored_rules()[rule.number]
            values, there = table.scores(rule)
            assert (there == alive).all(), "each rule scores the documents that earlier rules kept, and no others"
            mask = np.zeros(len(table), dtype=bool)
            mask[there] = np.asarray(filter_.keep_batch(values[there]), dtype=bool) ^ inverted
            here = (stage == rule.stage) & (number == rule.number)
            assert (here == (alive & ~mask)).all()
            alive &= mask
        kept += int((stage < 0).sum())
        dropped += int((stage >= 0).sum())
    wanted = funnel(tmp_path / "out")
    assert (kept, dropped) == (wanted[0], sum(n for *_, n in wanted[1]))


def test_the_same_bytes_with_workers_and_without_fusing(source, tmp_path):
    execute(*stages(source, tmp_path / "one"))
    execute(*stages(source, tmp_path / "two"), workers=2)
    assert stored(tmp_path / "one") == stored(tmp_path / "two") and stored(tmp_path / "one")
    execute(*stages(source, tmp_path / "apart"), fuse=False)
    apart, one = StoredScores(str(tmp_path / "apart")), StoredScores(str(tmp_path / "one"))
    assert max(file.step for file in apart.files) > 1
    fused, unfused = one.distributions(), apart.distributions()
    assert [rule.path for rule in apart.rules] == [rule.path for rule in one.rules]
    for rule, other in zip(one.rules, apart.rules, strict=True):
        assert fused[rule].linear() == unfused[other].linear()


def test_the_output_is_the_same_without_scores(source, tmp_path):
    run(source, tmp_path / "with")
    run(source, tmp_path / "without", scores=False)
    names = [
        path.relative_to(tmp_path / "with")
        for path in (tmp_path / "with").rglob("*.jsonl")
        if "_gristmill" not in path.parts
    ]
    assert names
    for name in names:
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()
    assert not (tmp_path / "without/_gristmill/scores").exists()


def test_missing_and_damaged_files_are_found_and_made_again(source, tmp_path):
    out = tmp_path / "out"
    run(source, out)
    wanted = stored(out)
    first, second, *_ = sorted((out / "_gristmill/scores").iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1] + b"x")
    problems = verify_output(str(out)).problems
    assert any(first.name in one for one in problems) and any(second.name in one for one in problems)
    run(source, out)
    assert stored(out) == wanted and not verify_output(str(out)).problems
    (out / "_gristmill/scores/part-000999.arrow").write_bytes(b"")
    assert verify_output(str(out)).problems == ["unexpected: _gristmill/scores/part-000999.arrow"]
    (out / "_gristmill/scores/part-000999.arrow").unlink()
    (out / "_gristmill/scores/notes.txt").write_text("mine")
    assert not verify_output(str(out)).problems
    (out / "_gristmill/scores/part-000001.step7.arrow").write_bytes(b"")
    assert verify_output(str(out)).problems == ["unexpected: _gristmill/scores/part-000001.step7.arrow"]


def test_starting_over_removes_scores(source, tmp_path):
    out = tmp_path / "out"
    run(source, out)
    execute(*stages(source, out, scores=False), fresh=True)
    assert not (out / "_gristmill/scores").exists()


def test_scores_may_be_switched_off_in_a_resumed_run(source, tmp_path):
    out = tmp_path / "out"
    run(source, out)
    sorted(out.glob("part-*"))[0].unlink()
    run(source, out, scores=False)
    scores = StoredScores(str(out))
    assert "done blocks have scores" in scores.coverage()


def test_appended_files(source, tmp_path):
    out = tmp_path / "out"
    run(source, out)
    before = stored(out)
    (source / "9.jsonl").write_text((source / "0.jsonl").read_text())
    execute(*stages(source, out), append=True)
    after = stored(out)
    assert before.items() < after.items() and not verify_output(str(out)).problems


def test_scores_of_a_task_that_was_split_at_a_failing_document(source, tmp_path):
    @processing_stage
    def fails_at_one(batch: DocumentBatch) -> DocumentBatch:
        if "doc-45" in batch.data["id"].to_pylist():
            raise ValueError("this document")
        return batch

    out = tmp_path / "out"
    rules = ScoreFilter(WordCountFilter(5)), fails_at_one, ScoreFilter(WordCountFilter(20))
    writer = JsonlWriter(str(out))
    execute(JsonlReader(str(source), blocksize=9000), *rules, writer, workers=2, ignore_failures=True)
    assert not verify_output(str(out)).problems
    scores = StoredScores(str(out))
    second = [rule for rule in scores.rules if rule.stage_name == "ScoreFilter (2)"]
    ids = [ident for table in scores.tables() for ident in np.array(table.ids())[table.scores(second[0])[1]]]
    assert len(ids) == len(set(ids))
    assert any(file.task.count("-") > 1 for file in scores.files), [file.task for file in scores.files]


def test_scores_before_and_after_a_deduplication(source, tmp_path):
    (source / "9.jsonl").write_text((source / "0.jsonl").read_text())
    out = tmp_path / "out"
    rules = ScoreFilter(WordCountFilter(20)), ExactDeduplication(), ScoreFilter(WordCountFilter(40))
    execute(JsonlReader(str(source), blocksize=9000), *rules, JsonlWriter(str(out)))
    assert not verify_output(str(out)).problems
    scores = StoredScores(str(out))
    assert [(rule.phase, rule.stage_name) for rule in scores.rules] == [(1, "ScoreFilter"), (0, "ScoreFilter (2)")]
    dropped = funnel(out)[1]
    by_rule = {rule: 0 for rule in scores.rules}
    for table in scores.tables():
        for rule in scores.rules:
            if rule.phase == table.file.phase:
                by_rule[rule] += int((table.dropped_by[0] == rule.stage).sum())
    of_stage = {stage: sum(n for one, _, n in dropped if one == stage) for stage, *_ in dropped}
    assert [by_rule[rule] for rule in scores.rules] == [of_stage["ScoreFilter"], of_stage["ScoreFilter (2)"]]
    name = next(iter((out / "_gristmill/scores").glob("*.phase1*")))
    name.write_bytes(b"damaged")
    assert verify_output(str(out)).problems


class Fractions(AtMost):
    """Scores that differ in the last bit."""

    most = 1 / 3

    def score_batch(self, texts) -> np.ndarray:
        numbers = [float(text.split()[0]) for text in texts.strings()]
        return np.where(np.array(numbers) < 1, 1 / 3, np.nextafter(1 / 3, 1))


class Large(AtMost):
    """Whole numbers that a float does not hold."""

    most = 2**53

    def score_batch(self, texts) -> np.ndarray:
        return np.array([2**53 + int(text.split()[0]) for text in texts.strings()])


def test_scores_are_stored_without_rounding(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": f"{n % 2} word"}) + "\n" for n in range(20)))
    for rule, values in ((Fractions(), {1 / 3, np.nextafter(1 / 3, 1)}), (Large(), {2**53, 2**53 + 1})):
        out = tmp_path / rule.name
        execute(JsonlReader(str(tmp_path / "in.jsonl")), ScoreFilter(rule), JsonlWriter(str(out)))
        scores = StoredScores(str(out))
        (table,) = scores.tables()
        found, _ = table.scores(scores.rules[0])
        assert set(found.tolist()) == values
        assert (np.asarray(rule.keep_batch(found)) == (table.dropped_by[0] < 0)).all()


class Languages(DocumentFilter):
    """Scores are texts."""

    def score_document(self, text: str) -> str:
        return "en" if "the" in text.split() else "other"

    def keep_document(self, score: str) -> bool:
        return score == "en"


def test_scores_that_are_no_numbers(source, tmp_path):
    out = tmp_path / "out"
    execute(JsonlReader(str(source)), ScoreFilter([WordCountFilter(5), Languages()]), JsonlWriter(str(out)))
    scores = StoredScores(str(out))
    words, languages = scores.rules
    assert words.is_numeric and not languages.is_numeric
    number = sum(int((table.dropped_by[1] == languages.number).sum()) for table in scores.tables())
    assert number == sum(n for _, reason, n in funnel(out)[1] if reason == "languages")


def test_documents_nearest_to_a_threshold_with_their_texts(source, tmp_path):
    for parquet in (False, True):
        out = tmp_path / f"out-{parquet}"
        run(source, out, parquet=parquet)
        scores = StoredScores(str(out))
        rule = scores.rules[0]
        near = scores.nearest(rule, rule.thresholds[0], 4)
        assert near.kept and near.dropped
        assert all(one.score >= 8 for one in near.kept) and all(one.score < 8 for one in near.dropped)
        values = [table.scores(rule) for table in scores.tables()]
        every = sorted((value for one, there in values for value in one[there] if value < 8), reverse=True)
        assert [one.score for one in near.dropped] == every[:4]
        found = StoredDocuments(scores).find([one.document for one in near.dropped])
        for one in near.dropped:
            record = found[one.document]
            assert len(record["text"].split()) == one.score and record["excluded_stage"] == "ScoreFilter"
        for one in near.kept:
            record = StoredDocuments(scores).find([one.document])[one.document]
            assert record is not None and record["word_count_score"] == one.score


@pytest.mark.parametrize(("share", "parquet"), [(1.0, False), (0.5, False), (0.5, True)])
def test_excluded_documents_are_those_of_the_scores(source, tmp_path, share, parquet):
    out = tmp_path / "out"
    run(source, out, parquet=parquet, excluded=share)
    scores = StoredScores(str(out))
    found = 0
    for table in scores.tables():
        rows = np.flatnonzero(table.dropped_by[0] >= 0)
        documents = {table.document(row): table.reasons[row] for row in rows.tolist()}
        for one, record in StoredDocuments(scores).find(list(documents)).items():
            if record is not None:
                found += 1
                assert record["excluded_reason"] == documents[one]
                word_count, there = table.scores(scores.rules[0])
                assert not there[one.row] or record["word_count_score"] == word_count[one.row]
    total = sum(n for *_, n in funnel(out)[1])
    assert found == total if share == 1 else 0 < found < total


def test_distributions_do_not_depend_on_order_and_are_exact():
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    values = np.concatenate([rng.normal(size=500), rng.integers(-5, 900, 500), np.zeros(20), rng.lognormal(0, 6, 400)])
    whole, parts, reverse = Distribution(), Distribution(), Distribution()
    whole.add(values)
    for one in np.array_split(values, 7):
        part = Distribution()
        part.add(one)
        parts.merge(part)
    for one in np.array_split(values[::-1], 5):
        reverse.add(one)
    assert whole.linear() == parts.linear() == reverse.linear()
    histogram = whole.linear(30)
    assert len(histogram.counts) <= 30
    counts = [
        int(((values >= low) & (values < high)).sum())
        for low, high in zip(histogram.edges, histogram.edges[1:], strict=False)
    ]
    assert counts == list(histogram.counts)
    for share in (0.01, 0.3, 0.5, 0.77, 0.99):
        exact = np.quantile(values, share, method="inverted_cdf")
        assert abs(whole.quantile(share) - exact) <= 0.012 * abs(exact) + 1e-12
    assert (whole.least, whole.most, whole.count) == (values.min(), values.max(), len(values))


def test_distributions_of_extreme_numbers():
    for values in ([400.0], [0.0, 0.0], [1e300, -1e300], [5e-324, 1e-320], [2.0**53, 2.0**53 + 2], [1e-9, 1e9]):
        found, other = Distribution(), Distribution()
        found.add(np.array(values))
        other.add(np.array([np.nan, np.inf, 1.0]))
        other.merge(found)
        histogram = found.linear(20)
        assert sum(histogram.counts) == len(values) and len(histogram.counts) <= 20
        assert sum(other.linear(20).counts) == len(values) + 1 and other.missing == 2
        assert found.quantile(0.5) == pytest.approx(min(values), rel=0.012, abs=1e-300)


def test_the_error_of_counts_is_bounded():
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    values = [f"v{int(rng.paretovariate(0.7))}" for _ in range(5000)]
    found = TopCounts(capacity=40)
    for start in range(0, 5000, 700):
        part = TopCounts(capacity=40)
        part.add(values[start : start + 700])
        found.merge(part)
    assert found.total == 5000 and len(found.counts) <= 40 and found.error <= 5000 / 40
    for value, n in found.counts.items():
        assert n <= values.count(value) <= n + found.error
