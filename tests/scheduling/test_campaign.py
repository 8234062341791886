"""Random pipelines with random faults: nothing is lost and only bad tasks are quarantined."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.simulation import shrink
from tests.simulation.campaign import failures, main, new_seeds, read_seeds
from tests.simulation.in_flight import in_flight_scenario
from tests.simulation.scenario import Scenario, StepModel, play, random_scenario
from tests.simulation.shrink import Draw, failure_of, report

from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling import in_flight, workers

SEEDS = 1000
IN_FLIGHT_SEEDS = 300
LOTS = 4
"""Tests that a campaign is divided into, so that they can run at the same time."""
FAILED_SEEDS = Path(__file__).with_name("failed_seeds.txt")


def part(seeds: range, lot: int) -> range:
    size = len(seeds) // LOTS
    return seeds[lot * size : (lot + 1) * size]


@pytest.mark.parametrize("lot", range(LOTS))
def test_new_seeds_pass(lot: int) -> None:
    """Each commit plays its own seeds, so that CI does not play the same ones for ever."""
    seeds = part(new_seeds(SEEDS, commit()), lot)
    print(f"replay: python -m tests.simulation.campaign --seeds {seeds.start}:{seeds.stop}")
    assert_all_pass(seeds)


@pytest.mark.parametrize("lot", range(LOTS))
def test_every_seed_that_ever_failed_passes(lot: int) -> None:
    seeds = read_seeds(FAILED_SEEDS.read_text().splitlines())
    assert len(seeds) >= 15 and len(set(seeds)) == len(seeds)
    assert_all_pass(seeds[lot::LOTS])


def assert_all_pass(seeds: Sequence[int], draw: Draw = random_scenario) -> None:
    failed = [x for _, more in failures(seeds, draw=draw) for x in more]
    if failed:
        names = " ".join(str(seed) for seed, _ in failed)
        pytest.fail(f"{report(*failed[0], draw=draw)}\n\nfailing seeds: {names}", pytrace=False)


def commit() -> str:
    """The commit that is checked out, or nothing outside a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def test_a_commit_always_has_the_same_seeds_and_no_other_commit_has() -> None:
    assert new_seeds(1000, "abc") == new_seeds(1000, "abc")
    assert not set(new_seeds(1000, "abc")) & set(new_seeds(1000, "abd"))
    assert new_seeds(5) != new_seeds(5)
    assert failure_of(random_scenario((1 << 62) - 1)) is None


def test_the_scenarios_have_everything() -> None:
    scenarios = [random_scenario(seed) for seed in range(300)]
    for name in ("crash", "kill", "oom", "node_loss"):
        assert sum(getattr(x.faults, f"{name}_every_s") > 0 for x in scenarios) > 20, name
    for name in ("slow_workers", "slow_tasks"):
        assert sum(getattr(x.faults, name) > 0 for x in scenarios) > 20, name
    for name in ("poison", "raises", "flaky", "hangs", "chunk", "failing_setups"):
        assert sum(any(getattr(m, name) for m in x.models) for x in scenarios) > 20, name
    for name in ("gpu", "gpu_memory", "memory", "workers", "node_setup", "lifetime_us"):
        assert sum(any(getattr(s, name) for s in x.steps) for x in scenarios) > 20, name
    assert sum(x.config.batch_mode for x in scenarios) > 20


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that forgets what was suspended in a worker that dies."""

    def forgetful(s, w, cause, running, detail):  # type: ignore[no-untyped-def]
        w.suspended.clear()
        lost(s, w, cause, running, detail)

    lost = workers.units_lost
    monkeypatch.setattr(workers, "units_lost", forgetful)


@pytest.fixture
def failing(broken: None) -> tuple[int, shrink.Failure]:
    return next((seed, f) for seed in range(1000) if (f := failure_of(random_scenario(seed))) is not None)


def test_a_failing_seed_is_reported_with_a_replay_and_a_shrunk_trace(failing: tuple[int, shrink.Failure]) -> None:
    seed, failure = failing
    whole = random_scenario(seed)
    small, found = shrink.shrink(whole, failure, limit_s=10.0)
    assert found.kind == failure.kind
    assert _size(small) < _size(whole)
    text = report(seed, found, 0.0, small)
    assert f"campaign --seed {seed} --trace" in text
    assert "-> Dispatch(" in text and text.count("\n") < 60
    pasted = text.partition("paste:\n")[2]
    scope: dict[str, object] = {}
    with pytest.raises(Exception) as error:
        exec(pasted, scope)
    assert type(error.value).__name__ == found.kind.partition(":")[0]


def _size(x: Scenario) -> int:
    return x.sources * len(x.steps) * len(x.nodes)


def test_a_failing_campaign_prints_the_seed(
    failing: tuple[int, shrink.Failure], capsys: pytest.CaptureFixture[str]
) -> None:
    seed, failure = failing
    assert main(["--seeds", f"{seed}:{seed + 1}", "--no-shrink"]) == 1
    said = capsys.readouterr().out
    assert f"seed {seed} fails: " in said and f"kind: {failure.kind}" in said
    assert f"failing seeds: {seed}\n" in said


def test_all_failing_seeds_are_named_at_the_end(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0:120", "--no-shrink", "--keep-going"]) == 1
    said = capsys.readouterr().out
    failing = [int(x) for x in said.partition("failing seeds: ")[2].split()]
    assert len(failing) > 1 and failing == sorted(failing)
    assert said.count(" fails: ") == len(failing) and "120 seeds in" in said
    assert main(["--seeds", "0:120", "--no-shrink", "--most", "1"]) == 1
    assert capsys.readouterr().out.count(" fails: ") == 1


def test_seeds_come_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "seeds.txt"
    file.write_text("# two\n3\n\n5  # and why\n")
    assert main(["--from-file", str(file)]) == 0
    assert "2 seeds in" in capsys.readouterr().out
    file.write_text("three\n")
    with pytest.raises(SystemExit):
        main(["--from-file", str(file)])
    assert str(file) in capsys.readouterr().err


def test_new_seeds_are_drawn_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--new", "1"]) == 0
    said = capsys.readouterr().out
    first, last = map(int, said.partition("seeds ")[2].split("\n")[0].split(":"))
    assert last == first + 1 and "1 seeds in" in said


def test_a_seed_can_be_played_from_the_command_line() -> None:
    command = [sys.executable, "-m", "tests.simulation.campaign"]
    done = subprocess.run([*command, "--seeds", "0:4", "--jobs", "2"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "4 seeds in" in done.stdout and "none failed" in done.stdout
    told = subprocess.run([*command, "--seed", "3"], capture_output=True, text=True, timeout=300)
    assert "seed 3: all is well" in told.stdout
    wrong = subprocess.run([*command, "--seeds", "5"], capture_output=True, text=True, timeout=300)
    assert wrong.returncode == 2 and "two numbers like 0:1000" in wrong.stderr


# Units in flight ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lot", range(LOTS))
def test_new_seeds_with_units_in_flight_pass(lot: int) -> None:
    seeds = part(new_seeds(IN_FLIGHT_SEEDS, f"in flight {commit()}"), lot)
    print(f"replay: python -m tests.simulation.campaign --in-flight --seeds {seeds.start}:{seeds.stop}")
    assert_all_pass(seeds, in_flight_scenario)


def test_every_seed_with_units_in_flight_that_ever_failed_passes() -> None:
    file = FAILED_SEEDS.with_name("failed_seeds_in_flight.txt")
    for seed in read_seeds(file.read_text().splitlines()):
        assert failure_of(in_flight_scenario(seed)) is None, seed


def _in_flight_models(x: Scenario) -> list[StepModel]:
    return [model for model, step in zip(x.models, x.steps, strict=True) if step.in_flight]


def test_the_scenarios_with_units_in_flight_have_everything() -> None:
    scenarios = [in_flight_scenario(seed) for seed in range(300)]
    assert all(any(step.in_flight for step in x.steps) for x in scenarios)
    for name in ("stubborn", "blocks", "hangs", "poison", "raises"):
        count = sum(any(getattr(m, name) for m in _in_flight_models(x)) for x in scenarios)
        assert count > 20, name
    for name in ("streams", "uses_gpu", "lifetime_us", "needs_nothing"):
        assert sum(any(s.in_flight and getattr(s, name) for s in x.steps) for x in scenarios) > 20, name
    assert sum(x.interrupt_us is not None for x in scenarios) > 10


def test_runs_with_units_in_flight_see_everything() -> None:
    seen: Counter[str] = Counter()
    for seed in range(25):
        scenario = in_flight_scenario(seed)
        world = scenario.world()
        handle = world.handle

        def handle_and_count(events: Sequence[e.Event], handle: Any = handle) -> list[c.Command]:
            commands: list[c.Command] = handle(events)
            for x in (*events, *commands):
                seen[type(x).__name__] += 1
                if isinstance(x, e.WorkerDied) and x.begun is not None:
                    seen[f"{x.cause.name}, {min(2, len(x.begun))} begun"] += 1
            return commands

        world.handle = handle_and_count  # type: ignore[method-assign]
        play(scenario, world)
    for name in (
        "LimitInFlight",
        "ReturnWaiting",
        "UnitsReturned",
        "UnitEmitted",
        "Resume",
        "KillWorker",
        "InputsLost",
    ):
        assert seen[name] > 1, name
    for name in ("CRASHED, 2 begun", "KILLED, 2 begun", "OUT_OF_MEMORY, 2 begun", "CRASHED, 1 begun"):
        assert seen[name] > 0, name


def test_the_campaign_finds_a_bug_in_units_in_flight(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def halve(s: Any, step: Any) -> None:
        """A scheduler that does not tell its workers."""
        step.halve_in_flight()

    monkeypatch.setattr(in_flight, "_halve", halve)
    assert main(["--in-flight", "--seeds", "0:300", "--most", "1", "--no-shrink"]) == 1
    monkeypatch.undo()
    seed = capsys.readouterr().out.partition("seed ")[2].partition(" ")[0]
    assert main(["--in-flight", "--seed", seed]) == 0
