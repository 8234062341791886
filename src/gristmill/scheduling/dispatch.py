"""Dispatch work: to the step furthest downstream first, to idle workers first, never beyond the budget."""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

from gristmill.scheduling import in_flight
from gristmill.scheduling.assignment import LONG_US, assign
from gristmill.scheduling.commands import Pull
from gristmill.scheduling.credit import admit, fits_budget, predicted
from gristmill.scheduling.records import NodeRec, StepRec, Unit, WorkerRec, WorkerState
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.state import State

CHEAP_SETUP_US = 50_000


def dispatch(s: State) -> None:
    """Dispatch all work that can start now."""
    if s.ending.stopping or s.suspects.solo_running:
        return
    if s.suspects.solo and _solo_can_run(s):
        if not s.running:
            _dispatch_to_solo(s)
        return
    for step in reversed(s.steps):
        if step.dedicated and step.accepting:
            if step.spec.in_flight:
                _dispatch_in_flight(s, step)
            else:
                _dispatch_to_dedicated(s, step)
    if s.shared.idle:
        for w in list(s.shared.idle.values()):
            _dispatch_to_shared(s, w)
    if s.shared.partly_busy:
        for w in list(s.shared.partly_busy.values()):
            _dispatch_to_shared(s, w)
    if not s.source.ended and not s.source.pulling:
        _pull(s)


def _solo_can_run(s: State) -> bool:
    """Whether it makes sense to let everything else wait: a suspect has a worker, or could have one at once."""
    for step in s.steps:
        has_place = step.workers if step.dedicated else any(can_host(node, step) for node in s.nodes.values())
        if has_place and any(unit.solo for unit in step.queue.suspects):
            return True
    return False


def _dispatch_to_solo(s: State) -> None:
    """Dispatch a unit that is suspected of using all the memory to a fresh worker, while nothing runs."""
    for step in reversed(s.steps):
        unit = next((u for u in step.queue.suspects if u.solo), None)
        if unit is None:
            continue
        for w in (step.workers if step.dedicated else s.shared.workers).values():
            ready = w.state is WorkerState.READY and w.kill_cause is None
            if ready and w.is_fresh and (step.dedicated or can_host(s.nodes[w.node], step)):
                _take_suspect(s, step, unit)
                unit.reserved = predicted(s, step, len(unit.tasks), unit.bytes)
                assign(s, w, unit)
                return


def _dispatch_to_dedicated(s: State, step: StepRec) -> None:
    if not (step.queue.size or step.suspended) or not may_run(s, step):
        return
    long = step.service.service_us() * step.spec.batch_size > LONG_US
    for idle in (True, False):
        if long and not idle and step.queue.size <= len(step.workers) * step.spec.batch_size:
            return  # the last ones go to the worker that is free first, not to one with much left to do
        for w in list(step.accepting.values()):
            while (not w.assigned) is idle and w.id in step.accepting:
                if not _cpu_free(s, w, step):
                    break
                unit = _take(s, step, w)
                if unit is None:
                    break
                assign(s, w, unit)
                if idle:
                    break
            if not (step.queue.size or step.suspended):
                return


def _dispatch_in_flight(s: State, step: StepRec) -> None:
    """Dispatch to the workers with the fewest units. No unit waits in a worker while another has a free slot."""
    if not (step.queue.size or step.suspended) or not may_run(s, step):
        return
    # The last ones begin where a slot is free first.
    is_last = step.service.service_us() > LONG_US and step.queue.size <= len(step.workers) * step.in_flight
    by_load = [(len(w.assigned) + len(w.suspended), w.id) for w in step.accepting.values()]
    heapify(by_load)
    while by_load:
        w = step.accepting.get(by_load[0][1])
        unit = _take_in_flight(s, step, w, not is_last) if w is not None and _cpu_free(s, w, step) else None
        if w is None or unit is None:
            heappop(by_load)
            continue
        assign(s, w, unit)
        heapreplace(by_load, (len(w.assigned) + len(w.suspended), w.id))
        if not (step.queue.size or step.suspended):
            return


def _take_in_flight(s: State, step: StepRec, w: WorkerRec, may_wait: bool) -> Unit | None:
    """Take the next unit for a worker: a suspended one, which has a slot, or another if there is a place for it."""
    if in_flight.has_place(step, w, may_wait):
        return _take(s, step, w)
    return _take_suspended(s, step, w) if w.suspended else None


def _dispatch_to_shared(s: State, w: WorkerRec) -> None:
    """Fill one shared worker. An idle one is filled to its depth only if no other worker is idle."""
    while True:
        unit = _choose(s, w)
        if unit is None:
            return
        assign(s, w, unit)
        if s.shared.idle or (w.id not in s.shared.partly_busy):
            return


def _choose(s: State, w: WorkerRec) -> Unit | None:
    """Choose the unit furthest downstream that this shared worker can run. A fresh worker takes suspects first."""
    if s.suspects.shared and w.is_fresh:
        unit = _choose_from(s, w, only_suspects=True)
        if unit is not None:
            return unit
    return _choose_from(s, w)


def _choose_from(s: State, w: WorkerRec, only_suspects: bool = False) -> Unit | None:
    waiting = len(w.assigned)
    for step in reversed(s.steps):
        if step.dedicated or not (step.queue.size or step.suspended) or waiting >= step.depth:
            continue
        if only_suspects and not step.queue.suspects:
            continue
        if not may_run(s, step) or not _cpu_free(s, w, step):
            continue
        spec = step.spec
        if spec.has_setup and not (w.hosts.get(step.index, True) and (only_suspects or _worth_hosting(s, step, w))):
            continue
        if spec.node_setup and not is_set_up(s.nodes[w.node], step):
            continue
        unit = _take(s, step, w)
        if unit is not None:
            return unit
    return None


def may_run(s: State, step: StepRec) -> bool:
    """Whether a step may run: batch mode has a barrier before each step."""
    return not s.config.batch_mode or step.index == 0 or s.steps[step.index - 1].has_ended


def is_set_up(node: NodeRec, step: StepRec) -> bool:
    """Whether `setup_on_node` of this step, if it has one, is done on this node."""
    return not step.spec.node_setup or node.set_up.get(step.index, False)


def can_host(node: NodeRec, step: StepRec) -> bool:
    """Whether a shared worker on this node can ever run this step."""
    return step.spec.cpu <= node.cpu and step.spec.memory <= node.memory and is_set_up(node, step)


def _worth_hosting(s: State, step: StepRec, w: WorkerRec) -> bool:
    """Whether a shared worker should set up this step, which has a setup, if it has not yet.

    One worker finds out what the setup costs; others follow only if the work that waits takes longer than that, or
    if nothing runs anywhere.
    """
    if step.index in w.hosts or step.hosts == 0 or s.running == 0:
        return True
    if step.setup.mean_us < 0:
        return False
    return (
        step.setup.mean_us <= CHEAP_SETUP_US
        or step.queue.size * step.service.service_us() > step.setup.mean_us * step.hosts
    )


def pool(s: State, node: NodeRec) -> int:
    """Return the CPUs of a node for shared workers: what dedicated workers leave, but enough for any one step."""
    return max(node.free.cpu, min(s.shared.cpu_floor, node.cpu))


def _shared_downstream(s: State, step: StepRec, node: NodeRec) -> bool:
    """Whether a shared step further downstream could run here: on scarce CPUs it goes first."""
    return any(
        x.queue.size and not x.dedicated and can_host(node, x) and may_run(s, x) and fits_budget(s, x)
        for x in s.steps[step.index + 1 :]
    ) and any(w.node == node.id and w.is_open for w in s.shared.workers.values())


def _cpu_free(s: State, w: WorkerRec, step: StepRec) -> bool:
    node = s.nodes[w.node]
    more = step.spec.cpu - w.cpu_held
    if step.dedicated:
        busy = node.cpu_busy + max(more, 0)
        spare = node.cpu - busy
        if spare < s.shared.cpu_floor - node.shared_cpu_busy and _shared_downstream(s, step, node):
            return False
        return more <= 0 or spare >= 0
    memory = step.spec.memory - w.memory_held
    if memory > 0 and node.shared_memory_busy + memory > max(node.free.memory, min(s.shared.memory_floor, node.memory)):
        return False
    return more <= 0 or (node.cpu_busy + more <= node.cpu and node.shared_cpu_busy + more <= pool(s, node))


def _take(s: State, step: StepRec, w: WorkerRec) -> Unit | None:
    """Take the next unit of a step for this worker and reserve memory for its outputs. Return None if there is none."""
    if w.state is WorkerState.DRAINING or (w.suspended and w.has_suspect):
        return _take_suspended(s, step, w)
    if step.queue.suspects and w.is_fresh:
        unit = next((u for u in step.queue.suspects if u.rebuild is not None), step.queue.suspects[0])
        if not _reserve(s, step, unit):
            return _take_rebuild(s, step, w)
        _take_suspect(s, step, unit)
        return unit
    if w.suspended:
        resumed = _take_suspended(s, step, w)
        if resumed is not None:
            return resumed
    if step.queue.retries:
        rebuild = _take_rebuild(s, step, w)
        if rebuild is not None:
            return rebuild
        unit = step.queue.retries[0]
        if (unit.avoid != w.id or not _has_other(s, step, w)) and _reserve(s, step, unit):
            step.queue.retries.popleft()
            return unit
    queue = step.queue.tasks
    if not queue:
        return None
    size = step.spec.batch_size
    if size == 1:
        unit = Unit(step.index, [queue[0]], bytes=queue[0].bytes)
    else:
        n = min(size, len(queue))
        if n < size and w.assigned and not _upstream_ended(s, step):
            return None
        tasks = [queue[i] for i in range(n)]
        unit = Unit(step.index, tasks, bytes=sum(t.bytes for t in tasks))
    if not _reserve(s, step, unit):
        return None
    for _ in unit.tasks:
        queue.popleft()
    return unit


def _take_rebuild(s: State, step: StepRec, w: WorkerRec) -> Unit | None:
    """Take a unit that makes lost data again. It is always admitted, so it goes ahead of others."""
    if step.queue.rebuilds:
        for unit in step.queue.retries:
            if unit.rebuild is not None and (unit.avoid != w.id or not _has_other(s, step, w)):
                unit.reserved = 0
                step.queue.retries.remove(unit)
                return unit
    return None


def _take_suspect(s: State, step: StepRec, unit: Unit) -> None:
    step.queue.suspects.remove(unit)
    s.suspects.count_queued(unit, step.dedicated, -1)


def _has_other(s: State, step: StepRec, w: WorkerRec) -> bool:
    """Whether a unit that failed in this worker can be tried in another."""
    if step.dedicated:
        return any(x.is_open for x in step.workers.values() if x is not w)
    return any(
        x.is_open and can_host(s.nodes[x.node], step) and (not step.spec.has_setup or step.index in x.hosts)
        for x in s.shared.workers.values()
        if x is not w
    )


def _take_suspended(s: State, step: StepRec, w: WorkerRec) -> Unit | None:
    for unit in w.suspended.values():
        if unit.step == step.index:
            return unit if _reserve(s, step, unit) else None
    return None


def _upstream_ended(s: State, step: StepRec) -> bool:
    return s.steps[step.index - 1].ended if step.index else s.source.ended


def _reserve(s: State, step: StepRec, unit: Unit) -> bool:
    size = 0 if unit.rebuild is not None else admit(s, step, len(unit.tasks), unit.bytes)
    if size < 0:
        return False
    unit.reserved = size
    return True


def free_for_shared(s: State, node: NodeRec) -> int:
    return min(pool(s, node) - node.shared_cpu_busy, node.cpu - node.cpu_busy)


def shared_wanted(s: State, node: NodeRec) -> int:
    """Return how many more shared workers could be busy on this node."""
    free = free_for_shared(s, node)
    wanted = 0
    for step in reversed(s.steps):
        if step.dedicated or not step.queue.size or not may_run(s, step):
            continue
        if not is_set_up(node, step):
            continue
        units = -(-step.queue.size // step.spec.batch_size)
        if s.budget.used + s.budget.headroom[step.index] > s.config.budget:
            units = min(units, 1)
        cost = max(step.spec.cpu, UNIT // 4)
        fit = min(units, max(free, 0) // cost if step.spec.cpu else 4)
        wanted += fit
        free -= fit * cost
    return wanted


def _pull(s: State) -> None:
    first = s.steps[0]
    workers = len(first.workers) if first.dedicated else len(s.shared.workers)
    target = min(1024, max(16, 2 * first.depth * max(1, workers)) * first.spec.batch_size)
    if first.queue.size * 2 >= target:
        return
    if first.in_flight:
        target = max(target, first.depth * workers)
    count = target - first.queue.size
    if not s.config.batch_mode:
        free = s.config.budget - s.budget.used - s.budget.source_headroom
        count = min(count, free // max(s.source.size.bytes, 1) if s.source.size.known else 1)
        if not s.tasks:
            count = max(count, 1)
    if count > 0:
        s.source.ask(count * s.source.size.bytes)
        s.budget.reserve(s.source.reserved)
        s.out.append(Pull(count))
