"""Progress is checked after every event: a stall is reported where it begins, and so is a balancer in two minds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from script import Script
from tests.simulation.back_and_forth import BackAndForth
from tests.simulation.invariants import check_progress
from tests.simulation.scenario import random_scenario
from tests.simulation.shrink import failure_of
from tests.simulation.world import CheckedWorld

from gristmill.scheduling import StepSpec, balance, moves, scheduler, time_sharing
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.balance_state import BalanceState
from gristmill.scheduling.lost_data import recovery
from gristmill.scheduling.planning import StaffingPlan, StepDemand
from gristmill.scheduling.records import StepRec, WorkerState
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.simulator.model import SECOND, StepModel, cpus
from gristmill.scheduling.state import State


def stalls(seed: int, every: int = 1) -> bool:
    scenario = random_scenario(seed)
    scenario.check_every = every
    failure = failure_of(scenario)
    return failure is not None and "nothing runs although work remains" in failure.error


# The invariants can fail ------------------------------------------------------------------------------------------


def test_a_stall_is_reported_at_the_event_where_it_begins() -> None:
    w = CheckedWorld([StepSpec("a", gpu=UNIT)], [StepModel()], 4, nodes=[cpus(2, 1)], check_every=1000)
    w.run(until_us=SECOND // 2)
    for worker in w.scheduler.state.workers.values():
        worker.kill_cause = None
        worker.state = WorkerState.READY
    w.scheduler.state.running = 0  # it believes that nothing runs, and does nothing about it
    w.scheduler.state.steps[0].accepting.clear()
    with pytest.raises(AssertionError, match=r"nothing runs although work remains at \['a'\]"):
        w.run()
    assert w.now < 2 * SECOND


def test_a_scheduler_that_does_not_unlock_itself_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not stalls(803733)
    monkeypatch.setattr(scheduler, "ensure_progress", lambda s: None)
    assert stalls(803733, every=1000)


def test_fetched_data_that_waits_for_deferred_data_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_fetch_origin", lambda s, piece: None)
    failure = failure_of(random_scenario(803265))
    assert failure is not None


@pytest.fixture
def fickle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A balancer whose decisions do not stand."""
    monkeypatch.setattr(BalanceState, "may_fill", lambda self, place: True)
    monkeypatch.setattr(BalanceState, "may_vacate", lambda self, place: True)


def two_minds(s: Script, monkeypatch: pytest.MonkeyPatch, between: Callable[[Script], object]) -> None:
    """A balancer that lets an idle worker go, and starts one in the same place when it runs next."""
    watch = BackAndForth()
    s.give(1)
    s.start()
    idle = next(w for w in s.state.workers.values() if not w.assigned)
    plan = StaffingPlan({0: 1})
    monkeypatch.setattr(balance, "solve", lambda problem: plan)
    s.tell(e.Tick())
    watch.check(s.state)
    plan = StaffingPlan({0: 1}, leaves=[idle.id])
    s.tell(e.Tick())
    watch.check(s.state)
    plan = StaffingPlan({0: 1})
    s.tell(e.WorkerLeft(idle.id))
    watch.check(s.state)
    between(s)
    watch.check(s.state)
    plan = StaffingPlan({0: 2}, starts=[(0, idle.node, idle.placement)])
    s.tell(e.Tick())
    watch.check(s.state)


def gpu_script() -> Script:
    return Script(StepSpec("a", gpu=UNIT), nodes=(cpus(4, 2),), autoscale_interval_us=1)


@pytest.mark.usefixtures("fickle")
def test_two_opposing_decisions_without_evidence_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match=r"'a' go back and forth without new evidence: .*, then .*, then "):
        two_minds(gpu_script(), monkeypatch, lambda s: s.tell(e.Tick()))


@pytest.mark.parametrize(
    "news",
    [
        lambda s: s.finish(),
        lambda s: s.fail(),
        lambda s: s.tell(cpus(1, node=7)),
        lambda s: s.tell(e.SourceSized(9)),
        lambda s: s.tell(e.Tick(), after=600 * SECOND),
    ],
    ids=["a unit finished", "a unit failed", "a node joined", "the source was sized", "a unit takes long"],
)
def test_opposing_decisions_with_evidence_between_them_are_allowed(
    news: Callable[[Script], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    s = gpu_script()
    two_minds(s, monkeypatch, news)
    assert len(s.all(c.StartWorker)) == 3


def test_a_place_that_a_worker_left_is_not_filled_again_without_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    s = gpu_script()
    two_minds(s, monkeypatch, lambda s: s.tell(e.Tick()))
    assert len(s.all(c.StartWorker)) == 2
    s.finish()
    assert len(s.all(c.StartWorker)) == 3, "a unit finished: the next plan is free to decide otherwise"


def test_a_worker_that_was_started_is_not_let_go_without_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (StepSpec("a", gpu=UNIT), StepSpec("b", gpu=UNIT))
    s = Script(*steps, nodes=(cpus(4, 2),), autoscale_interval_us=1)
    s.give(1)
    s.start()
    b = next(w for w in s.state.workers.values() if w.step == 1)
    plan = StaffingPlan({0: 1, 1: 0}, leaves=[b.id])
    monkeypatch.setattr(balance, "solve", lambda problem: plan)
    s.tell(e.Tick())
    s.tell(e.WorkerLeft(b.id))
    plan = StaffingPlan({0: 2, 1: 0}, starts=[(0, 0, b.placement)])
    (started,) = (x for x in s.tell(e.Tick()) if isinstance(x, c.StartWorker))
    plan = StaffingPlan({0: 1, 1: 0}, leaves=[started.worker])
    assert not any(isinstance(x, c.StopWorker) for x in s.tell(e.Tick(), e.WorkerReady(started.worker), e.Tick()))
    assert c.StopWorker(started.worker) in s.tell(e.SourceSized(9), e.Tick())


@pytest.mark.usefixtures("fickle")
def test_a_worker_that_is_replaced_for_no_reason_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: a starting worker seems slower than a new one and is replaced, even in its own place, for ever."""

    def slow_start(s: State, step: StepRec, tasks: int, drain: int) -> StepDemand:
        demand = before(s, step, tasks, drain)
        workers = []
        for worker in demand.workers:
            w = s.workers.get(worker.id)
            starting = w is not None and w.state is WorkerState.STARTING
            late = drain + (s.now - w.started_at) // 8 if w is not None and starting else worker.delay_us
            workers.append(replace(worker, delay_us=late))
        return replace(demand, workers=tuple(workers))

    before = balance._demand
    monkeypatch.setattr(balance, "_demand", slow_start)
    monkeypatch.setattr(moves, "_without_replacements", lambda s, plan: (plan.leaves, [*plan.starts, *plan.later]))
    failure = failure_of(random_scenario(1958))
    assert failure is not None and "go back and forth without new evidence" in failure.error


# The last resort ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_a_run_ends_even_if_the_balancer_never_does_anything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then each step gets its workers one at a time, when nothing else is under way."""
    monkeypatch.setattr(balance, "solve", lambda problem: StaffingPlan({x.step: 0 for x in problem.demands}))
    steps = [StepSpec("a", gpu=UNIT), StepSpec("b", gpu=UNIT, batch_size=2), StepSpec("c"), StepSpec("d", gpu=2 * UNIT)]
    models = [StepModel(SECOND // 10, fan_out=1.5) for _ in steps]
    w = CheckedWorld(steps, models, 10, nodes=[cpus(2, 2)], seed=seed, kill_every_us=3 * SECOND)
    w.run().assert_nothing_lost()


def test_idle_workers_make_way_for_the_step_furthest_downstream(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Script(StepSpec("a", gpu=UNIT), StepSpec("b", gpu=UNIT), nodes=(cpus(4, 1),), budget=1)
    monkeypatch.setattr(balance, "solve", lambda problem: StaffingPlan({x.step: 0 for x in problem.demands}))
    s.give(1)
    assert [x.step for x in s.all(c.StartWorker)] == [0]
    s.start()
    said = s.finish()
    assert c.StopWorker(0) in said
    said = s.tell(e.WorkerLeft(0))
    assert [x.step for x in said if isinstance(x, c.StartWorker)] == [1]
    assert any("nothing else can run" in d.text for d in s.state.decisions)
    s.to_the_end()


def test_a_worker_keeps_its_turn_until_there_is_new_evidence() -> None:
    s = Script(StepSpec("a", gpu=UNIT), nodes=(cpus(2, 1),))
    s.give(1)
    s.start()
    worker, _ = s.unit()
    s.finish()
    step, w = s.state.steps[0], s.state.workers[worker]
    place = (step.index, w.node, w.placement)
    assert time_sharing._could_leave(s.state, step, w)
    s.state.balance.fill(place)
    assert not time_sharing._could_leave(s.state, step, w)
    s.state.balance.evidence += 1
    assert time_sharing._could_leave(s.state, step, w)


def test_that_nothing_is_under_way_is_evidence_only_if_there_was_other_evidence_since() -> None:
    s = gpu_script()
    before = s.state.balance.evidence
    s.state.balance.note_unblocked()
    s.state.balance.note_unblocked()
    assert s.state.balance.evidence == before + 1
    s.give(1)
    then = s.state.balance.evidence
    s.state.balance.note_unblocked()
    assert s.state.balance.evidence == then + 1


# What used to stall ------------------------------------------------------------------------------------------------


def test_a_worker_with_a_unit_that_could_be_resumed_does_not_leave() -> None:
    s = Script(StepSpec("a", gpu=UNIT), nodes=(cpus(2, 1),))
    s.give(1)
    s.start()
    worker, unit = s.unit()
    s.tell(e.UnitEmitted(worker, unit, s.outputs(1, parent=unit), 10))
    w = s.state.workers[worker]
    w.suspended.update({u.key: u for u in w.assigned})
    w.assigned.clear()
    assert not time_sharing._could_leave(s.state, s.state.steps[0], w)


def test_lost_data_is_rebuilt_although_a_suspended_suspect_blocks_the_only_worker() -> None:
    """Other work must not run in that worker, and the budget does not let the suspect resume."""
    s = Script(StepSpec("a", gpu=UNIT), StepSpec("b", gpu=2 * UNIT), nodes=(cpus(4, 1),), budget=1000)
    s.give(1)
    s.start()
    s.die()  # the task becomes a suspect
    s.start()
    worker, unit = s.unit()
    kept, lost = s.outputs(2, size=600, parent=unit, losable=True)
    s.tell(e.UnitEmitted(worker, unit, (kept, lost), 10))
    assert s.state.workers[worker].has_suspect and not s.running()
    said = s.tell(e.DataLost((lost.id,)))
    assert c.StopWorker(worker) in said
    check_progress(s.state)
    s.tell(e.WorkerLeft(worker))
    s.start()
    ((_, step, (rebuild,)),) = s.running()
    assert step == 0 and rebuild in s.state.lost.rebuilds
    s.tell(cpus(4, 2, node=1))  # b fits here
    s.to_the_end()
