"""Other thresholds from stored scores, against runs with those thresholds."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from gristmill.analysis.changes import names_of
from gristmill.analysis.stored_pipeline import in_source, stored_stages
from gristmill.analysis.what_if import what_if
from gristmill.cli.main import main
from gristmill.errors import PlanError
from gristmill.pipeline.planner import flatten
from gristmill.scores.stored import StoredScores
from gristmill.stages.deduplication.exact import ExactDeduplication
from gristmill.stages.function_definitions import processing_stage
from gristmill.stages.text.filters import ScoreFilter, WordCountFilter
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.tasks import DocumentBatch
from tests.scores.runs import corpus, funnel, run, stages
from tests.stages.deduplication.corpora import execute


def ask(out: Path, *changes: str):
    scores = StoredScores(str(out))
    pipeline = stored_stages(str(out))
    return what_if(scores, pipeline, changes, in_source=in_source(pipeline))


def answered(found) -> tuple[int, list[list]]:
    return found.after.kept, found.after.plain()["dropped"]


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[Path, Path, random.Random]:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("what-if")
    source = corpus(folder / "in", rng)
    run(source, folder / "out")
    return source, folder / "out", rng


@pytest.mark.parametrize("question", range(6))
def test_the_funnel_is_that_of_a_run_with_other_thresholds(done, tmp_path, question):
    source, out, rng = done
    scores = StoredScores(str(out))
    sets: dict[str, dict[str, float]] = {"gopher-quality": {"word_count.min_words": 10}}
    changes = []
    for name, (rule, threshold) in rng.sample(
        sorted(names_of(scores).items(), key=lambda one: one[0]), rng.randint(1, 4)
    ):
        if name.startswith("ScoreFilter (2).word_count"):
            continue
        stored = scores.distributions([rule])[rule]
        value = stored.quantile(rng.random()) if stored.count else threshold.value
        value = round(value) if isinstance(rule.arguments.get(threshold.argument), int) else value
        changes.append(f"{name}={value!r}")
        key = name.rpartition(".")[0]
        if rule.stage_name.startswith("gopher"):
            sets.setdefault(rule.stage_name, {})[f"{rule.name}.{threshold.argument}"] = value
        else:
            sets.setdefault(key, {})[threshold.argument] = value
    print(changes)
    try:
        run(source, tmp_path / "again", sets)
    except ValueError:
        return  # a range without numbers
    found = ask(out, *(changes or ["ScoreFilter.word_count.min_words=8"]))
    assert not found.undecided
    assert answered(found) == funnel(tmp_path / "again")


def test_a_document_that_comes_back_can_fail_a_later_rule(done, tmp_path):
    source, out, _ = done
    found = ask(out, "ScoreFilter.word_count.min_words=0")
    run(
        source,
        tmp_path / "again",
        {"ScoreFilter.word_count": {"min_words": 0}, "gopher-quality": {"word_count.min_words": 10}},
    )
    assert answered(found) == funnel(tmp_path / "again")
    before, after = found.before.dropped, found.after.dropped
    assert after["gopher-quality", "too few words"] > before["gopher-quality", "too few words"]


def test_nothing_is_written(done):
    _, out, _ = done
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    ask(out, "gopher-quality.word_count.min_words=20")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_parquet_and_a_share_of_excluded_documents(tmp_path):
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    source = corpus(tmp_path / "in", random.Random(seed))
    sets = {"gopher-quality": {"word_count.min_words": 4}}
    run(source, tmp_path / "again", sets)
    run(source, tmp_path / "whole", parquet=True)
    assert answered(ask(tmp_path / "whole", "gopher-quality.word_count.min_words=4")) == funnel(tmp_path / "again")
    run(source, tmp_path / "some", excluded=0.5)
    some = ask(tmp_path / "some", "gopher-quality.word_count.min_words=4")
    missing = sum(some.undecided.values())
    kept, dropped = answered(some)
    assert kept + sum(n for *_, n in dropped) + missing == sum(some.before.dropped.values()) + some.before.kept
    run(source, tmp_path / "none", excluded=False)
    none = ask(tmp_path / "none", "gopher-quality.word_count.min_words=4")
    assert sum(none.undecided.values()) >= missing


def test_several_steps(tmp_path):
    """A stage of the user's own is a step of its own, and rules after it store their scores in other files."""
    source = corpus(tmp_path / "in", random.Random(3))

    @processing_stage
    def odd_only(batch: DocumentBatch) -> DocumentBatch:
        return batch.keep([n % 5 != 0 for n in batch.data["n"].to_pylist()], reason="five")

    def pipeline(out: str, least: int, later: int) -> list:
        rules = [ScoreFilter(WordCountFilter(least)), odd_only, ScoreFilter(WordCountFilter(later, 150))]
        return [JsonlReader(str(source), blocksize=9000), *rules, JsonlWriter(str(tmp_path / out))]

    execute(*pipeline("out", 30, 40))
    scores = StoredScores(str(tmp_path / "out"))
    assert {file.step for file in scores.files} == {1, 2}
    for least, later in ((50, 40), (30, 20), (20, 60)):
        execute(*pipeline(f"again-{least}-{later}", least, later))
        changes = [f"ScoreFilter.word_count.min_words={least}", f"ScoreFilter (2).word_count.min_words={later}"]
        given = flatten(pipeline("out", 30, 40))
        found = what_if(scores, given, changes, runs_all=True)
        assert not found.undecided and answered(found) == funnel(tmp_path / f"again-{least}-{later}")
    cautious = what_if(scores, given, ["ScoreFilter.word_count.min_words=20"])
    assert list(cautious.undecided) == ["a later stage is not gristmill's"]


def test_deduplication_after_a_changed_rule_is_undecided(tmp_path):
    rng = random.Random(9)
    source = corpus(tmp_path / "in", rng)
    lines = (source / "0.jsonl").read_text().splitlines()
    (source / "3.jsonl").write_text("\n".join(lines[:30]) + "\n")
    out = tmp_path / "out"
    rules = ScoreFilter(WordCountFilter(20)), ExactDeduplication(), ScoreFilter(WordCountFilter(30, 120))
    execute(JsonlReader(str(source), blocksize=9000), *rules, JsonlWriter(str(out)))
    # a rule after it: exact
    again = ScoreFilter(WordCountFilter(20)), ExactDeduplication(), ScoreFilter(WordCountFilter(40, 120))
    execute(JsonlReader(str(source), blocksize=9000), *again, JsonlWriter(str(tmp_path / "again")))
    found = ask(out, "ScoreFilter (2).word_count.min_words=40")
    assert not found.undecided and answered(found) == funnel(tmp_path / "again")
    # a rule before it: equal texts go together, so documents that go are decided, and those that come back are not
    again = ScoreFilter(WordCountFilter(50)), ExactDeduplication(), ScoreFilter(WordCountFilter(30, 120))
    execute(JsonlReader(str(source), blocksize=9000), *again, JsonlWriter(str(tmp_path / "more")))
    found = ask(out, "ScoreFilter.word_count.min_words=50")
    assert not found.undecided and answered(found) == funnel(tmp_path / "more")
    # without rules after it, only the records of duplicates tell what was removed
    plain = JsonlReader(str(source), blocksize=9000), ExactDeduplication()
    execute(plain[0], ScoreFilter(WordCountFilter(20)), plain[1], JsonlWriter(str(tmp_path / "plain")))
    execute(plain[0], ScoreFilter(WordCountFilter(50)), plain[1], JsonlWriter(str(tmp_path / "plain-50")))
    found = ask(tmp_path / "plain", "min_words=50")
    assert not found.undecided and answered(found) == funnel(tmp_path / "plain-50")
    found = ask(out, "ScoreFilter.word_count.min_words=10")
    back = found.before.dropped["ScoreFilter", "too few words"] - found.after.dropped["ScoreFilter", "too few words"]
    assert back and sum(found.undecided.values()) == back and "duplicates" in next(iter(found.undecided))
    whole = found.after.kept + found.after.dropped.total() + back + found.after.errored
    assert whole == found.before.read


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("word_cuont.min_words=3", "Did you mean"),
        ("min_words=3", "may be"),
        ("gopher-quality.word_count.lang=3", "changes the scores themselves"),
        ("gopher-quality.word_count.min_words=many", "is not a number"),
        ("gopher-quality.word_count.min_words", "is no change"),
        ("nonsense=1", "There are:"),
    ],
)
def test_a_wrong_name_is_reported(done, change, words):
    with pytest.raises(PlanError, match=words):
        ask(done[1], change)


def test_the_command(done, capsys):
    _, out, _ = done
    assert main(["what-if", str(out), "bullet_ratio.max_bullet_lines_ratio=0.9", "-n", "1"]) == 0
    shown = capsys.readouterr().out
    assert "ScoreFilter (2).bullet_ratio.max_bullet_lines_ratio: 0.05 -> 0.9" in shown and "kept" in shown
    assert main(["what-if", str(out), "bullet_ratio.max_bullet_lines_ratio=0.9", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["before"]["read"] == found["after"]["read"]
    assert main(["what-if", str(out), "nonsense=1"]) == 2
    assert "has no threshold 'nonsense'" in capsys.readouterr().err


def test_hostile_text_is_escaped(tmp_path, capsys):
    source = tmp_path / "in.jsonl"
    text = "\x1b[31mred \u202e bidi " + "word " * 30
    source.write_text(
        json.dumps({"id": "a", "text": text}) + "\n" + json.dumps({"id": "b", "text": "word " * 90}) + "\n"
    )
    execute(JsonlReader(str(source)), ScoreFilter(WordCountFilter(50)), JsonlWriter(str(tmp_path / "out")))
    assert main(["what-if", str(tmp_path / "out"), "min_words=10"]) == 0
    shown = capsys.readouterr().out
    assert "1 document comes back" in shown and "red" in shown
    assert "\x1b" not in shown and "\u202e" not in shown


def test_an_output_without_scores(tmp_path, capsys):
    source = corpus(tmp_path / "in", random.Random(1))
    run(source, tmp_path / "out", scores=False)
    assert not (tmp_path / "out/_gristmill/scores").exists()
    assert main(["what-if", str(tmp_path / "out"), "min_words=10"]) == 2
    assert "scores=True" in capsys.readouterr().err
    assert main(["what-if", str(tmp_path), "min_words=10"]) == 2
    assert "is not the output of a run" in capsys.readouterr().err


def test_an_unfinished_run_is_answered_in_part(tmp_path):
    source = corpus(tmp_path / "in", random.Random(1))
    execute(*stages(source, tmp_path / "out"))
    (tmp_path / "out/_gristmill/ledger.json").unlink()
    found = ask(tmp_path / "out", "gopher-quality.word_count.min_words=20")
    assert "the run is not finished" in found.coverage and found.before.read


def test_a_damaged_file_of_scores(tmp_path, capsys):
    source = corpus(tmp_path / "in", random.Random(1))
    run(source, tmp_path / "out")
    file = next((tmp_path / "out/_gristmill/scores").iterdir())
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert main(["what-if", str(tmp_path / "out"), "gopher-quality.word_count.min_words=20"]) == 2
    assert "is damaged" in capsys.readouterr().err
    run(source, tmp_path / "out")  # processes the block again
    ask(tmp_path / "out", "gopher-quality.word_count.min_words=20")
