"""Steps that share slots in time because not all of them can have a worker, and which workers leave first."""

from __future__ import annotations

from gristmill.scheduling.credit import fits_budget, may_resume, suspect_may_start
from gristmill.scheduling.dispatch import is_set_up, may_run
from gristmill.scheduling.placement import Capacity, Placement
from gristmill.scheduling.records import NodeRec, StepRec, WorkerRec, WorkerState
from gristmill.scheduling.state import State
from gristmill.scheduling.workers import drain, put_back_suspended, start, stop_if_drained


def staying(step: StepRec) -> list[WorkerRec]:
    return [w for w in step.workers.values() if w.state <= WorkerState.READY and not w.being_replaced]


def least_missed(s: State, step: StepRec) -> list[WorkerRec]:
    """Sort the workers of a step: starting, then idle, then with the least left to finish; youngest first."""
    mean = step.service.service_us() * step.spec.batch_size

    def left(w: WorkerRec) -> int:
        """Estimate what it has left to finish: a task that has taken longer than most may take much longer."""
        units = len(w.assigned) + len(w.suspended)
        elapsed = s.now - w.head_since if w.assigned else 0
        if w.begun:
            elapsed = s.now - min(w.begun.values())
        return units * mean + (elapsed if elapsed > step.unit_us else -elapsed)

    return sorted(staying(step), key=lambda w: (w.state, left(w), -w.id))


def _start_somewhere(s: State, step: StepRec) -> bool:
    """Start a worker where it fits: if possible not in a place that the step has left on the same evidence."""
    places = _free_places(s, step)
    if not places:
        return False
    node, placement = next((x for x in places if _may_fill(s, step, *x)), places[0])
    s.balance.fill((step.index, node.id, placement))
    start(s, node, step, placement)
    return True


def _free_places(s: State, step: StepRec) -> list[tuple[NodeRec, Placement]]:
    nodes = (node for node in s.nodes.values() if is_set_up(node, step))
    return [(node, placement) for node in nodes if (placement := node.free.find(step.spec)) is not None]


def _may_fill(s: State, step: StepRec, node: NodeRec, placement: Placement) -> bool:
    return s.balance.may_fill((step.index, node.id, placement))


def take_turns(s: State, active: list[StepRec]) -> None:
    """Give capacity to the step furthest downstream that could run: idle workers leave for it.

    While it waits no other step gets a worker, or the free capacity would never be large enough for it.
    """
    for step in reversed(active):
        if not _waits_for_turn(s, step):
            continue
        places = _free_places(s, step)
        if places:
            if any(_may_fill(s, step, *place) for place in places):
                _start_somewhere(s, step)
            continue
        for other in active:
            for w in list(other.workers.values()):
                if _could_leave(s, other, w):
                    s.decide(f"{step.spec.name}: its turn; a worker of {other.spec.name} is idle and leaves for it")
                    if w.state is WorkerState.READY:
                        s.balance.vacate((other.index, w.node, w.placement))
                    _let_go(s, w)
        return


def _let_go(s: State, w: WorkerRec) -> None:
    put_back_suspended(s, w)
    drain(s, w)
    stop_if_drained(s, w)


def unblock_step(s: State) -> bool:
    """Give a worker to the step furthest downstream whose work may start and that has none for it.

    A worker in which a suspected unit is suspended takes no other work, so it does not count. For use when nothing is
    under way. Idle workers leave one node, and its free place is reserved for the step. Return whether something
    changed.
    """
    for step in reversed(s.steps):
        if not step.dedicated or not step.queue.size or not may_run(s, step) or not fits_budget(s, step):
            continue
        if any(w.is_open for w in staying(step)):
            continue
        if _free_places(s, step):
            s.balance.note_unblocked()
            return _start_somewhere(s, step)
        for node in s.nodes.values():
            placement = Capacity(node.cpu, node.memory, node.free.gpu_memory).find(step.spec)
            if placement is None or not is_set_up(node, step):
                continue
            s.balance.note_unblocked()
            s.decide(f"{step.spec.name}: nothing else can run; the workers on node {node.id} leave for it")
            step.plan.reserve(node.id, placement, s.balance.evidence)
            for w in [w for w in s.workers.values() if w.step is not None and w.node == node.id]:
                _let_go(s, w)
            return True
    return False


def _could_leave(s: State, step: StepRec, w: WorkerRec) -> bool:
    """Whether a dedicated worker has nothing to do. One that waits for a CPU has something to do."""
    if w.assigned or w.state not in (WorkerState.READY, WorkerState.DRAINING):
        return False
    if w.state is WorkerState.DRAINING:
        return True
    if any(may_resume(s, step, unit) for unit in w.suspended.values()):
        return False  # its step would need a worker again at once
    if not s.balance.may_vacate((step.index, w.node, w.placement)):
        return False  # it was given its place on the same evidence
    return not (step.queue.size and fits_budget(s, step, rebuilds=not w.has_suspect))


def _waits_for_turn(s: State, step: StepRec) -> bool:
    return (
        step.queue.size > 0
        and not staying(step)
        and fits_budget(s, step)
        and any(is_set_up(node, step) for node in s.nodes.values())
    )


def turn_due(s: State) -> bool:
    """Whether a step waits for a worker while it could have one, or while a dedicated worker has nothing to do."""
    starved = [x for x in s.steps if x.dedicated and not x.workers and may_run(s, x) and _waits_for_turn(s, x)]
    if not starved:
        return False
    if any(node.free.find(step.spec) for step in starved for node in s.nodes.values()):
        return True
    return any(_could_leave(s, step, w) for step in s.steps if step.dedicated for w in step.workers.values())


def refresh_for_suspects(s: State) -> None:
    """Replace the idlest worker of a step whose suspect needs a fresh one, if none is coming."""
    for step in s.steps:
        if not step.dedicated or not suspect_may_start(s, step):
            continue
        if any(w.state is not WorkerState.READY or w.is_fresh or w.serves_suspect for w in step.workers.values()):
            continue
        if not step.workers:
            continue
        s.balance.add_evidence()
        if _start_somewhere(s, step):
            continue
        s.decide(f"{step.spec.name}: a worker is replaced, to try a suspected task in a fresh one")
        drain(s, least_missed(s, step)[0])
