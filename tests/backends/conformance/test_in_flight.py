"""Asynchronous stages on every executor. The bridges run their tasks one at a time, with the same results."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.backends.conformance.executors import Kind
from tests.backends.conformance.stages import Ask, Number, Pour, Review, Trim
from tests.backends.conformance.test_conformance import run, written

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.text.io import JsonlReader, JsonlWriter

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::gristmill.backends.capabilities.LimitedExecutor"),
]


def numbers(n: int) -> list[Number]:
    return [Number(data=i) for i in range(n)]


def has_several(kind: Kind) -> bool:
    """Whether the executor has several units in flight."""
    return kind.name in ("local", "ray")


def test_results_and_counts_are_those_of_one_in_flight(kind: Kind) -> None:
    kept = [n for n in range(60) if n % 10 != 3]
    expected = [(f"{n}.{i}", n, [f"{n}/{i}"]) for n in kept for i in range(n % 10)]
    result = run(kind, [Ask(), Pour(), Trim()], numbers(60))
    assert [(t.task_id, t.data, t.trail) for t in result] == expected
    result.check()
    counts = {name: (s.tasks_in, s.tasks_done, s.tasks_out, s.tasks_dropped) for name, s in result.stages.items()}
    outputs = len(expected)
    assert counts == {
        "Ask": (60, 60, 54, 6),
        "Pour": (54, 54, outputs, 6),
        "Trim": (outputs, outputs, outputs, 0),
    }
    if has_several(kind):
        one = run(kind, [Ask().with_(max_in_flight=1), Pour().with_(max_in_flight=1), Trim()], numbers(60))
        assert [(t.task_id, t.data, t.trail) for t in one] == expected


def test_generators_are_suspended_within_a_small_budget(kind: Kind) -> None:
    if not has_several(kind):
        pytest.skip("runs one task at a time")
    result = run(kind, [Pour(), Trim()], [Number(data=n % 10) for n in range(80)], object_store_memory="6MB")
    assert len(result) == sum(n % 10 for n in range(80))
    assert result.record.peak_bytes_in_flight < 14e6


def test_a_task_that_raises_is_the_only_one_lost(kind: Kind) -> None:
    result = run(kind, [Ask(how="fail")], numbers(20), ignore_failures=True, max_attempts=2)
    assert [t.data for t in result] == [n for n in range(20) if n not in (3, 7, 13)]
    (failure,) = result.failures
    assert (failure.task_id, failure.error) == ("7", "ValueError: seven")


def test_tasks_are_in_flight_at_the_same_time(kind: Kind) -> None:
    if not has_several(kind):
        pytest.skip("runs one task at a time")
    stage = Ask(0.05).with_(num_workers=1)
    result = run(kind, [stage], numbers(160))
    record = result.record
    assert len(result) == 144
    assert record.last_output_s - record.first_output_s < 160 * 0.05 * 3 / 4
    assert result.record.steps[0].workers_started == 1


def test_a_task_that_takes_too_long_is_cancelled_and_no_worker_ends(kind: Kind) -> None:
    if not kind.can("timeout"):
        pytest.skip("has no timeouts")
    result = run(kind, [Ask(how="hang").with_(timeout_s=0.7)], numbers(40), ignore_failures=True, max_attempts=2)
    assert [t.data for t in result] == [n for n in range(40) if n != 7 and n % 10 != 3]
    (failure,) = result.failures
    assert failure.error == "TimeoutError: 'Ask' took longer than timeout_s=0.7: cancelled"
    assert result.record.worker_deaths == 0


@pytest.mark.parametrize("how", ["swallow", "block"])
def test_a_task_that_cannot_be_cancelled_costs_its_worker(kind: Kind, how: str) -> None:
    if not kind.can("timeout"):
        pytest.skip("has no timeouts")
    stage = Ask(how=how).with_(timeout_s=0.7, num_workers=1)
    result = run(kind, [stage], numbers(30), ignore_failures=True)
    assert [t.data for t in result] == [n for n in range(30) if n != 7 and n % 10 != 3]
    (failure,) = result.failures
    assert failure.task_id == "7" and "timed out" in failure.error
    assert result.record.worker_deaths == 2


def test_of_sixteen_in_flight_only_the_one_that_ends_its_process_is_lost(kind: Kind) -> None:
    if not kind.can("crashes"):
        pytest.skip("a worker's death ends the run")
    stage = Ask(0.03, how="crash").with_(num_workers=1)
    result = run(kind, [stage], numbers(40), ignore_failures=True, max_attempts=1)
    assert [t.data for t in result] == [n for n in range(40) if n != 7 and n % 10 != 3]
    (failure,) = result.failures
    assert failure.task_id == "7"
    if has_several(kind):
        assert "exit code 3" in failure.error and result.record.worker_deaths == 2


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = random.Random(11)
    folder = tmp_path_factory.mktemp("in-flight")
    words = ("grain", "mill", "of", "stone")
    lines = [json.dumps({"id": i, "text": " ".join(rng.choices(words, k=i % 17))}) for i in range(600)]
    lines[40] = '{"id": "broken'
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "in.jsonl"


def review(corpus: Path, out: Path, in_flight: int) -> Pipeline:
    stages: list[Any] = [JsonlReader(str(corpus), blocksize="2KB"), Review().with_(max_in_flight=in_flight)]
    return Pipeline("review", stages=[*stages, JsonlWriter(str(out))])


def test_files_and_the_account_of_documents_are_the_same_to_the_byte(
    kind: Kind, corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("review")
    one = review(corpus, folder / "one", 1).run(LocalExecutor({"view": "off", "num_cpus": 2}))
    several = review(corpus, folder / "several", 8).run(kind.make())
    assert not several.ledger.problems and len(several.ledger.blocks) > 10
    assert several.ledger.plain() == one.ledger.plain()
    files = written(folder / "several")
    assert files == written(folder / "one")
    assert any(name.startswith("excluded/") for name in files) and any(n.startswith("quarantine/") for n in files)
