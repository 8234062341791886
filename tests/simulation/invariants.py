"""Invariants that hold after every event. Slow on purpose: everything is recounted from the tasks and workers."""

from __future__ import annotations

from gristmill.scheduling.credit import fits_budget
from gristmill.scheduling.dispatch import may_run
from gristmill.scheduling.liveness import under_way
from gristmill.scheduling.placement import misfit, usable
from gristmill.scheduling.records import StepRec, TaskState, WorkerState
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.state import State
from gristmill.scheduling.time_sharing import staying
from tests.simulation.lost_data_invariants import check_lost_data


def check(s: State) -> None:
    """Raise `AssertionError` naming the first broken invariant."""
    where: dict[int, str] = {}
    for step in s.steps:
        queued = [*step.queue.tasks, *(t for u in (*step.queue.retries, *step.queue.suspects) for t in u.tasks)]
        for t in (*queued, *(t for u in step.queue.stalled.values() for t in u.tasks)):
            _once(where, t.id, f"queued at step {step.index}")
            assert t.state is TaskState.QUEUED, f"task {t.id} waits but is {t.state.name}"
        assert step.queue.size == len(queued), f"step {step.index}: {step.queue.size} queued, {len(queued)} in queues"
        assert step.queue.bytes == sum(t.bytes for t in queued), f"step {step.index}: queued bytes are off"
    running, reserved = 0, s.source.reserved
    for w in s.workers.values():
        for unit in w.assigned:
            running += 1
            reserved += unit.reserved
            assert unit.worker == w.id, f"unit {unit.key} does not know its worker {w.id}"
            for t in unit.tasks:
                _once(where, t.id, f"assigned to worker {w.id}")
                assert t.state is TaskState.ASSIGNED, f"task {t.id} is assigned but is {t.state.name}"
        for unit in w.suspended.values():
            for t in unit.tasks:
                _once(where, t.id, f"suspended in worker {w.id}")
                assert t.state is TaskState.SUSPENDED, f"task {t.id} is suspended but is {t.state.name}"
    assert where.keys() == s.tasks.keys(), f"tasks lost or unknown: {sorted(where.keys() ^ s.tasks.keys())[:5]}"
    assert running == s.running, "units running are miscounted"
    assert reserved == s.budget.reserved, "reserved bytes are miscounted"
    kept = sum(record.bytes for record in s.lost.records.values())
    assert s.budget.held == kept + sum(t.bytes for t in s.tasks.values()), "held bytes are miscounted"
    for step in s.steps:
        live = sum(1 for t in s.tasks.values() if t.step == step.index)
        assert step.live == live, f"step {step.index}: {step.live} live, {live} found"
        suspended = sum(1 for w in s.workers.values() for u in w.suspended.values() if u.step == step.index)
        assert step.suspended == suspended, f"step {step.index}: suspended units are miscounted"
        slices = sum(x.live - 1 for d, x in s.slices.items() if _step_of(s, d) == step.index)
        ended = step.counts.tasks_done + step.counts.tasks_failed + step.counts.tasks_cancelled
        assert step.counts.tasks_in == ended + live - slices - step.queue.rebuilds, (
            f"step {step.index}: the account does not balance"
        )
        hosts = sum(1 for w in s.shared.workers.values() if step.index in w.hosts and w.state <= WorkerState.READY)
        assert step.hosts == hosts, f"step {step.index}: hosts are miscounted"
    _check_in_flight(s)
    _check_nodes(s)
    if s.lost.records or s.lost.rebuilds:
        check_lost_data(s)
    check_progress(s)


def check_progress(s: State) -> None:
    """Raise `AssertionError` if nothing is under way although work remains. Fast."""
    why = stall(s)
    assert not why, why


def stall(s: State) -> str:
    """Why the run makes no progress although it could, or an empty string."""
    if s.ending.finished or s.running or s.source.pulling or s.balance.solving or under_way(s):
        return ""
    if any(not done for node in s.nodes.values() for done in node.set_up.values()):
        return ""
    waiting = [step for step in s.steps if step.live]
    nodes = [(n.cpu, n.memory, n.free.gpu_memory) for n in s.nodes.values()]
    if any(misfit(step.spec, nodes) for step in waiting):
        # A step that fits no node now waits for one. Steps before it may wait for the memory that it will free.
        waiting = [step for step in waiting if not misfit(step.spec, nodes) and _may_start(s, step)]
    if waiting:
        return f"nothing runs although work remains at {[step.spec.name for step in waiting]}"
    if not s.tasks and not s.source.ended and s.nodes:
        return "the source is not asked although nothing is left to do"
    if not s.tasks and s.source.ended:
        return "all work is done and the run does not end"
    return ""


def _may_start(s: State, step: StepRec) -> bool:
    return step.queue.size > 0 and may_run(s, step) and fits_budget(s, step)


def _once(where: dict[int, str], task: int, place: str) -> None:
    assert task not in where, f"task {task} is in two places: {where[task]} and {place}"
    where[task] = place


def _step_of(s: State, data: int) -> int:
    return next(t.step for t in s.tasks.values() if t.data == data)


def _check_in_flight(s: State) -> None:
    for w in s.workers.values():
        step = s.steps[w.step] if w.step is not None else None
        assert (w.begun is not None) == (step is not None and step.in_flight > 0), f"worker {w.id} is of the wrong kind"
        if w.begun is None or step is None:
            continue
        keys = {unit.key for unit in w.assigned}
        assert w.begun.keys() <= keys, f"worker {w.id} has begun units that it does not have"
        assert step.spec.streams or not w.suspended, f"worker {w.id} of a step that does not stream has suspended units"
        if w.state is WorkerState.READY:
            taken = len(w.begun) + len(w.suspended)
            assert len(keys) == len(w.begun) or taken >= step.in_flight, (
                f"a unit waits in worker {w.id}, which has slots"
            )
            assert len(keys) == len(w.begun) or not step.spec.streams, f"a unit waits in worker {w.id}, which streams"
        suspects = [unit for unit in (*w.assigned, *w.suspended.values()) if unit.isolated]
        assert not suspects or len(keys) + len(w.suspended) == 1, f"a suspect in worker {w.id} is not alone"
    for step in s.steps:
        assert 0 < step.in_flight <= step.spec.in_flight or step.in_flight == step.spec.in_flight == 0


def _check_nodes(s: State) -> None:
    for node in s.nodes.values():
        workers = [w for w in s.workers.values() if w.node == node.id]
        dedicated = sum(w.placement.cpu for w in workers)
        memory = sum(w.placement.memory for w in workers)
        assert node.free.cpu == node.cpu - dedicated, f"node {node.id}: CPUs are miscounted"
        assert node.free.memory == node.memory - memory, f"node {node.id}: memory is miscounted"
        assert node.resized or node.free.cpu >= 0, f"node {node.id}: CPUs over-committed"
        assert node.resized or node.free.memory >= 0, f"node {node.id}: memory over-committed"
        if node.resized and not (s.balance.reason or s.balance.solving or s.ending.stopping):
            stay = [w.placement for step in s.steps for w in staying(step) if w.node == node.id]
            assert sum(p.cpu for p in stay) <= node.cpu, f"node {node.id} is too small for those who stay"
            assert sum(p.memory for p in stay) <= node.memory, (
                f"node {node.id} has too little memory for those who stay"
            )
        shared = sum(1 for w in workers if w.step is None)
        assert node.shared_workers == shared, f"node {node.id}: shared workers are miscounted"
        busy = sum(w.cpu_held for w in workers)
        assert node.cpu_busy == busy, f"node {node.id}: busy CPUs are miscounted"
        assert node.resized or busy <= node.cpu, f"node {node.id}: {busy / UNIT:g} CPUs busy of {node.cpu / UNIT:g}"
        for i, free in enumerate(node.free.gpu_free):
            used = sum(w.placement.gpu_share for w in workers if i in w.placement.gpus)
            assert free == usable(node.free.gpu_memory[i]) - used, f"node {node.id}: GPU {i} is miscounted"
            assert node.resized or free >= 0, f"node {node.id}: GPU {i} over-committed"
