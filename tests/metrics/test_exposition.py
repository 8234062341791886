"""From moments to the metrics of a run."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from gristmill.metrics import metric_table as m
from gristmill.metrics.exposition import MOST_REASONS, OTHER, SHARED, PhaseView, RunState, RunView, render
from gristmill.metrics.observer import DocumentsMoment, Moment, PlanInfo, StageMoment
from gristmill.metrics.openmetrics import COUNTER, HISTOGRAM
from gristmill.metrics.rates import InputProgress
from gristmill.scheduling.snapshot import (
    LATENCY_BOUNDS_US,
    GpuSnapshot,
    GpuWorker,
    Snapshot,
    StepSnapshot,
)

LABELS = {"run", "pipeline", "phase", "step", "stage", "state", "reason", "name", "gpu", "executor", "version", "le"}
COUNTS = tuple(range(len(LATENCY_BOUNDS_US) + 1))


def step_of(name: str = "step", dedicated: bool = True, **known: Any) -> StepSnapshot:
    known = {"latency": COUNTS, "latency_us": 7_500_000, "optimum_ns": 1, **known}
    base = StepSnapshot(name, dedicated, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, False)
    return replace(base, **known)


def stage_of(name: str, step: int = 0, **known: Any) -> StageMoment:
    return replace(StageMoment(name, step, 0, 0, 0, 0, 0, 0, 0, 0, 0.0), **known)


DOCUMENTS = DocumentsMoment(
    read=100,
    made=5,
    kept=60,
    merged=10,
    dropped={("filter", "short"): 20},
    errored={"bad line": 15},
    failed=3,
    counters={("redact", "emails"): 8},
    problems=0,
)


def snapshot_of(*steps: StepSnapshot, **known: Any) -> Snapshot:
    base = Snapshot(9_000_000, steps, 0, 30, 40, 512, 6, 12, False, 2, 1, 1, ())
    return replace(base, **known)


def moment_of(*steps: StepSnapshot, **known: Any) -> Moment:
    gpus = (GpuSnapshot(0, 98, 9 << 30, 80 << 30, 412.5, (GpuWorker(7, 0, 4 << 30), GpuWorker(8, 0, 1 << 30))),)
    snapshot = snapshot_of(*(steps or (step_of(planned=2), step_of("shared", False))), gpus=gpus)
    base = Moment(
        snapshot,
        memory_bytes=1000,
        memory_limit=4000,
        progress=InputProgress(120, 70, 3, 9, 512, 1024),
        stages=(stage_of("filter", tasks_in=4, busy_s=1.5),),
        documents=DOCUMENTS,
        failures_total=2,
        steps_memory=(300, 200),
        worker_bytes=(250, 100),
        idle_bytes=50,
    )
    return replace(base, **known)


def view_of(*moments: Moment, share: float | None = 0.9, **known: Any) -> RunView:
    plan = PlanInfo("p", "local", ())
    phases = tuple(PhaseView(plan, x, ((1.5, 0.25),) * len(x.snapshot.steps), share) for x in moments)
    return replace(RunView("r1", "p", "LocalExecutor", "1.0", 1000.5, phases), **known)


def samples_of(view: RunView, openmetrics: bool = False) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Parse the text strictly: each sample is there once."""
    found = {}
    for line in render(view, openmetrics).splitlines():
        if line.startswith("#"):
            continue
        parsed = re.fullmatch(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)', line)
        assert parsed is not None, line
        labels = tuple(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', parsed[2]))
        assert (parsed[1], labels) not in found, line
        found[parsed[1], labels] = float(parsed[3])
    return found


def values_of(view: RunView, metric: m.Metric, *labels: str) -> dict[Any, float]:
    found = {}
    for (name, of_sample), value in samples_of(view).items():
        if name == metric.name:
            key = tuple(dict(of_sample).get(label, "") for label in labels)
            found[key if len(labels) > 1 else key[0] if labels else ""] = value
    return found


def test_a_full_moment_has_a_sample_of_every_metric_and_of_no_other() -> None:
    names = {re.sub("_(bucket|sum|count)$", "", name) for name, _ in samples_of(view_of(moment_of()))}
    assert names == {metric.name for metric in m.METRICS}


def test_samples_have_the_labels_of_the_table() -> None:
    for (name, labels), _ in samples_of(view_of(moment_of())).items():
        metric = next(x for x in m.METRICS if x.name == re.sub("_(bucket|sum|count)$", "", name))
        common = m.COMMON_LABELS[:2] if metric.name in m.OF_RUN else m.COMMON_LABELS
        more = ("le",) if name.endswith("_bucket") else ()
        assert tuple(label for label, _ in labels) == (*common, *metric.labels, *more), name
        assert {label for label, _ in labels} <= LABELS


def test_names_follow_the_conventions_of_prometheus() -> None:
    for metric in m.METRICS:
        assert re.fullmatch("gristmill(_[a-z]+)+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == COUNTER)
        assert not re.search("_(ms|us|millis|minutes|mb|kb|gb|percent)(_|$)", metric.name)
        assert not re.search("_(count|sum|bucket)$", metric.name)
        assert metric.help.endswith(".")


@pytest.mark.parametrize("openmetrics", [False, True])
def test_each_family_is_in_one_place_after_its_head(openmetrics: bool) -> None:
    heads: Counter[str] = Counter()
    family = ""
    for line in render(view_of(moment_of(), moment_of()), openmetrics).splitlines():
        if line.startswith("# TYPE"):
            family = line.split()[2]
            heads[family] += 1
        elif not line.startswith("#"):
            assert line.startswith(family)
    assert set(heads.values()) == {1}


def test_promtool_finds_nothing_to_complain_about() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    text = render(view_of(moment_of(), moment_of()), False)
    done = subprocess.run([promtool, "check", "metrics"], input=text.encode(), capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_values_are_those_of_the_moment() -> None:
    view = view_of(moment_of())
    assert values_of(view, m.MEMORY) == {"": 1000}
    assert values_of(view, m.MEMORY_LIMIT) == {"": 4000}
    assert values_of(view, m.WORKER_MEMORY, "step") == {"step": 250, "shared": 100, SHARED: 50}
    assert values_of(view, m.PROGRESS) == {"": 0.5}
    assert values_of(view, m.SHARE) == {"": 0.9}
    assert values_of(view, m.FAILURES) == {"": 2}
    assert values_of(view, m.WAITING_SECONDS, "step") == {"step": 1.5, "shared": 1.5}
    assert values_of(view, m.BLOCKED_SECONDS, "step") == {"step": 0.25, "shared": 0.25}
    assert values_of(view, m.BOTTLENECK, "step") == {"step": 1, "shared": 0}
    assert values_of(view, m.WORKERS_PLANNED, "step") == {"step": 2}
    assert values_of(view, m.STAGE_BUSY, "step", "stage") == {("step", "filter"): 1.5}
    assert values_of(view, m.STAGE_COUNTS, "stage", "name") == {("redact", "emails"): 8}


def test_gpus_have_their_use_memory_and_power_and_the_memory_of_each_step() -> None:
    view = view_of(moment_of())
    assert values_of(view, m.GPU_USE, "gpu") == {"0": 0.98}
    assert values_of(view, m.GPU_MEMORY, "gpu") == {"0": 9 << 30}
    assert values_of(view, m.GPU_SIZE, "gpu") == {"0": 80 << 30}
    assert values_of(view, m.GPU_WATTS, "gpu") == {"0": 412.5}
    assert values_of(view, m.GPU_WORKERS, "gpu", "step") == {("0", "step"): 5 << 30}


def test_a_histogram_has_seconds_as_bounds_and_counts_all_units() -> None:
    found = {
        dict(labels)["le"]: value
        for (name, labels), value in samples_of(view_of(moment_of(step_of()))).items()
        if name == m.UNIT_SECONDS.name + "_bucket"
    }
    assert [float(bound) for bound in found] == [*(us / 1e6 for us in LATENCY_BOUNDS_US), float("inf")]
    assert list(found.values()) == [sum(COUNTS[: i + 1]) for i in range(len(COUNTS))]
    assert m.UNIT_SECONDS.kind == HISTOGRAM


def test_each_worker_is_in_one_state() -> None:
    """The snapshot counts workers that drain among the busy ones."""
    step = step_of(busy=3, idle=2, starting=1, draining=2)
    assert values_of(view_of(moment_of(step)), m.WORKERS, "state") == {
        "busy": 1,
        "idle": 2,
        "starting": 1,
        "draining": 2,
    }


def test_shared_workers_count_for_the_step_that_they_run_or_for_none() -> None:
    view = view_of(moment_of(step_of("a", False, busy=2), step_of("b", False, busy=0)))
    assert values_of(view, m.WORKERS, "step", "state") == {
        (SHARED, "idle"): 1,
        (SHARED, "starting"): 1,
        ("a", "busy"): 2,
        ("b", "busy"): 0,
    }


def test_a_ledger_that_does_not_balance_shows_by_how_much() -> None:
    assert values_of(view_of(moment_of()), m.BALANCE) == {"": 0}
    lost = replace(DOCUMENTS, kept=57, problems=1)
    view = view_of(moment_of(documents=lost))
    assert values_of(view, m.BALANCE) == {"": 3}
    assert values_of(view, m.PROBLEMS) == {"": 1}


def test_reasons_beyond_the_limit_count_as_others_and_no_sample_ever_decreases() -> None:
    """Reasons come up one after the other, and the later ones become the most frequent."""
    dropped: dict[tuple[str, str], int] = {}
    before: dict[Any, float] = {}
    for n in range(3 * MOST_REASONS):
        dropped["filter", f"reason {n}"] = n * n + 1
        dropped["filter", f"reason {n // 2}"] += 1
        view = view_of(moment_of(documents=replace(DOCUMENTS, dropped=dict(dropped))))
        now = values_of(view, m.DOCUMENTS_DROPPED, "stage", "reason")
        assert sum(now.values()) == sum(dropped.values())
        assert all(now[key] >= value for key, value in before.items())
        before = now
    assert len(before) == MOST_REASONS + 1
    assert before["filter", OTHER] > 0


def test_the_limit_of_reasons_is_that_of_one_stage() -> None:
    dropped = {(stage, f"reason {n}"): 1 for stage in ("a", "b") for n in range(MOST_REASONS)}
    view = view_of(moment_of(documents=replace(DOCUMENTS, dropped=dropped)))
    found = values_of(view, m.DOCUMENTS_DROPPED, "stage", "reason")
    assert len(found) == 2 * MOST_REASONS
    assert OTHER not in {reason for _, reason in found}


def test_reasons_and_names_that_look_the_same_are_one_sample() -> None:
    dropped = {("filter", "a\x1b"): 1, ("filter", "a\\x1b"): 2, ("filter", OTHER): 4}
    steps = (step_of("a\n"), step_of("a\\n"), step_of("a\n"), step_of(SHARED, False))
    view = view_of(moment_of(*steps, documents=replace(DOCUMENTS, dropped=dropped)))
    assert sum(values_of(view, m.DOCUMENTS_DROPPED, "reason").values()) == 7
    assert len(values_of(view, m.TASKS_DONE, "step")) == 4


def test_what_an_executor_does_not_know_is_left_out() -> None:
    snapshot = snapshot_of(step_of(optimum_ns=0, latency=()), bottleneck=None, budget_bytes=0)
    bare = Moment(snapshot, 0, 0, None)
    names = {name for name, _ in samples_of(view_of(bare, share=None))}
    unknown = (m.MEMORY, m.MEMORY_LIMIT, m.BUDGET, m.HELD, m.SHARE, m.OPTIMUM, m.DOCUMENTS_READ, m.INPUT_SIZE)
    assert not names & {x.name for x in (*unknown, m.WORKERS_PLANNED, m.GPU_USE, m.WORKER_MEMORY)}
    assert m.UNIT_SECONDS.name + "_count" not in names


def test_phases_that_have_ended_keep_their_counters() -> None:
    first = moment_of(step_of("read", tasks_done=7))
    view = view_of(first, moment_of(step_of("write", tasks_done=2)), first_phase=3)
    assert values_of(view, m.TASKS_DONE, "phase", "step") == {("3", "read"): 7, ("4", "write"): 2}
    assert values_of(view, m.BALANCE, "phase") == {"3": 0, "4": 0}
    assert values_of(view, m.QUEUE_TASKS, "phase", "step") == {("4", "write"): 0}


def test_a_run_that_has_not_begun_tells_what_it_is() -> None:
    names = {name for name, _ in samples_of(view_of())}
    assert names == m.OF_RUN
    plan = PlanInfo("p", "local", ())
    assert samples_of(replace(view_of(), phases=(PhaseView(plan),))) == samples_of(view_of())


def test_a_run_is_in_one_state() -> None:
    for state in RunState:
        states = values_of(view_of(state=state), m.RUN_STATE, "state")
        assert states == {x.value: int(x is state) for x in RunState}
