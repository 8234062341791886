"""Random pipelines with random faults: whatever happens, nothing is lost and nobody innocent is blamed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gristmill.scheduling import crew
from gristmill.scheduling.simulator import shrink
from gristmill.scheduling.simulator.campaign import main, play_lot
from gristmill.scheduling.simulator.scenario import Scenario, random_scenario
from gristmill.scheduling.simulator.shrink import failure_of, report

SEEDS = 1000
SEEDS_PER_TEST = 25


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_nothing_is_lost_whatever_happens(first: int) -> None:
    _, failed = play_lot(range(first, first + SEEDS_PER_TEST))
    if failed:
        pytest.fail(report(*failed[0]), pytrace=False)


def test_the_scenarios_have_everything() -> None:
    scenarios = [random_scenario(seed) for seed in range(300)]
    for name in ("crash", "kill", "oom", "node_loss", "cut_off", "restart"):
        assert sum(getattr(x.faults, f"{name}_every_s") > 0 for x in scenarios) > 20, name
    for name in ("slow_workers", "slow_tasks", "late", "duplicated", "lost"):
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

    lost = crew.units_lost
    monkeypatch.setattr(crew, "units_lost", forgetful)


@pytest.fixture
def failing(broken: None) -> tuple[int, shrink.Failure]:
    return next((seed, f) for seed in range(1000) if (f := failure_of(random_scenario(seed))) is not None)


def test_a_failing_seed_is_told_with_a_replay_and_a_shrunk_trace(failing: tuple[int, shrink.Failure]) -> None:
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


def test_a_failing_campaign_says_so(failing: tuple[int, shrink.Failure], capsys: pytest.CaptureFixture[str]) -> None:
    seed, failure = failing
    assert main(["--seeds", f"{seed}:{seed + 1}", "--no-shrink"]) == 1
    said = capsys.readouterr().out
    assert f"seed {seed} fails: " in said and f"kind: {failure.kind}" in said


def test_a_seed_can_be_played_from_the_command_line() -> None:
    command = [sys.executable, "-m", "gristmill.scheduling.simulator.campaign"]
    done = subprocess.run([*command, "--seeds", "0:4", "--jobs", "2"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "4 seeds in" in done.stdout and "none failed" in done.stdout
    told = subprocess.run([*command, "--seed", "3"], capture_output=True, text=True, timeout=100)
    assert "seed 3: all is well" in told.stdout
    wrong = subprocess.run([*command, "--seeds", "5"], capture_output=True, text=True, timeout=100)
    assert wrong.returncode == 2 and "two numbers like 0:1000" in wrong.stderr
