"""Carry out a plan: workers start and leave, and places are reserved for workers that start when others have left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gristmill.scheduling.balance_state import Place
from gristmill.scheduling.credit import suspect_may_start
from gristmill.scheduling.dispatch import is_set_up
from gristmill.scheduling.placement import Placement
from gristmill.scheduling.planning import Problem, StaffingPlan
from gristmill.scheduling.reasons import explain
from gristmill.scheduling.records import NodeRec, StepRec, WorkerRec, WorkerState
from gristmill.scheduling.state import State
from gristmill.scheduling.workers import drain, start


def fill_freed_places(s: State) -> None:
    """Start workers in the places that were reserved on nodes that workers have left.

    When no other worker is about to leave these nodes, a rebalance is due.
    """
    nodes = s.balance.take_freed_nodes()
    if s.ending.stopping:
        return
    for step in s.steps:
        for place in [place for place in step.plan.reserved if place[0] in nodes]:
            if _start_in_reserved(s, step, place):
                step.plan.reserved.remove(place)
    if not any(w.node in nodes for w in _leaving(s)):
        s.balance.request("workers left")


def start_reserved(s: State) -> None:
    """Start workers in reserved places that are free now. Cancel the reservations that no leaving worker can fulfil."""
    leaving = {w.node for w in _leaving(s)}
    for step in s.steps:
        for place in list(step.plan.reserved):
            if _start_in_reserved(s, step, place) or place[0] not in leaving:
                step.plan.reserved.remove(place)


def _start_in_reserved(s: State, step: StepRec, place: tuple[int, Placement]) -> bool:
    """Start a worker in a reserved place. If that was decided on older evidence, a new plan may decide otherwise."""
    started = _try_start(s, step, place)
    s.balance.add_evidence(started and step.plan.reserved_on != s.balance.evidence)
    return started


def _try_start(s: State, step: StepRec, place: tuple[int, Placement]) -> bool:
    """Start a worker if its place is free. Return whether it was started."""
    node_id, placement = place
    node = _usable(s, step, node_id)
    if node is None or not node.free.fits(placement):
        return False
    if not s.balance.may_fill((step.index, node_id, placement)):
        return False
    s.balance.fill((step.index, node_id, placement))
    start(s, node, step, placement)
    return True


def _usable(s: State, step: StepRec, node_id: int) -> NodeRec | None:
    """Return the node if it is up and a step that still has work can have workers there."""
    node = s.nodes.get(node_id)
    return node if node is not None and not step.ended and is_set_up(node, step) else None


def _leaving(s: State) -> Iterator[WorkerRec]:
    return (w for step in s.steps if step.dedicated for w in step.workers.values() if w.state >= WorkerState.DRAINING)


def apply(s: State, problem: Problem, plan: StaffingPlan) -> None:
    """Carry out a plan as far as it is still possible, and note why."""
    have = {demand.step: sum(h.id >= 0 for h in demand.workers) for demand in problem.demands}
    taken: dict[int, int] = {}
    leaves, starts = _without_replacements(s, plan)
    kept = _not_set_up(s, plan) | _taken_back(s, leaves, starts)
    for worker in leaves:
        w = s.workers.get(worker)
        if worker < 0:
            _withdraw(s, problem, worker)
        elif (
            w is not None
            and w.step is not None
            and w.state <= WorkerState.READY
            and w.node not in kept
            and not _awaits_suspect(s, w.step, w)
        ):
            taken[w.step] = taken.get(w.step, 0) + 1
            s.balance.vacate((w.step, w.node, w.placement))
            drain(s, w)
    grown: dict[int, int] = {}
    coming: dict[int, int] = {}
    leaving = {w.node for w in _leaving(s)}
    for place in starts:
        index, node_id, placement = place
        step = s.steps[index]
        if _try_start(s, step, (node_id, placement)):
            grown[index] = grown.get(index, 0) + 1
        elif node_id in leaving and _usable(s, step, node_id) and s.balance.may_fill(place):
            step.plan.reserve(node_id, placement, s.balance.evidence)
            coming[index] = coming.get(index, 0) + 1
    explain(s, problem, plan, have, grown, coming, taken)


def _without_replacements(s: State, plan: StaffingPlan) -> tuple[list[int], list[Place]]:
    """Return the workers that leave and the places where workers start.

    A worker stays if another of its step would start in its very place, or in a place that should be free now and is
    not: a worker is still leaving it.
    """
    starts = [*plan.starts, *plan.later]
    if not plan.leaves:
        return [], starts
    places = Counter(starts)
    taken: dict[int, list[Place]] = {}
    for place in plan.starts:
        node = s.nodes.get(place[1])
        if node is not None and not node.free.fits(place[2]):
            taken.setdefault(place[0], []).append(place)
    leaves = []
    for worker in plan.leaves:
        w = s.workers.get(worker)
        if w is None or w.step is None:
            leaves.append(worker)
            continue
        place = (w.step, w.node, w.placement)
        if not places[place]:
            others = [x for x in taken.get(w.step, ()) if places[x]]
            if not others:
                leaves.append(worker)
                continue
            place = others[0]
        places[place] -= 1
        starts.remove(place)
    return leaves, starts


def _not_set_up(s: State, plan: StaffingPlan) -> set[int]:
    """Return the nodes where workers would leave only for steps whose `setup_on_node` is not done there yet.

    No worker leaves these nodes. The free place would be filled again, and the next plan would free it again.
    """
    nodes: dict[int, bool] = {}
    for index, node_id, _ in plan.later:
        nodes[node_id] = nodes.get(node_id, False) or _usable(s, s.steps[index], node_id) is not None
    return {node_id for node_id, usable in nodes.items() if not usable}


def _taken_back(s: State, leaves: list[int], starts: list[Place]) -> set[int]:
    """Return the nodes where a worker would leave a place filled on the same evidence, or come back to one.

    No worker leaves these nodes until there is new evidence.
    """
    places = [(w.step, w.node, w.placement) for i in leaves if (w := s.workers.get(i)) and w.step is not None]
    return {place[1] for place in places if not s.balance.may_vacate(place)} | {
        place[1] for place in starts if not s.balance.may_fill(place)
    }


def _awaits_suspect(s: State, step: int, w: WorkerRec) -> bool:
    """Whether a fresh worker is kept for a suspected task, which would need another one if this one left.

    It is not kept for a task that may not start yet: the work that must run first may need its place.
    """
    return (w.is_fresh or w.serves_suspect) and suspect_may_start(s, s.steps[step])


def _withdraw(s: State, problem: Problem, name: int) -> None:
    """Cancel the reservation of a place."""
    demand = next(x for x in problem.demands if x.step == (-1 - name) % len(s.steps))
    worker = next(h for h in demand.workers if h.id == name)
    reserved = s.steps[demand.step].plan.reserved
    if (worker.node, worker.placement) in reserved:
        reserved.remove((worker.node, worker.placement))
