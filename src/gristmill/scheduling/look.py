"""Looking at the balance: what is known goes to the planner, what it says becomes workers, with a reason."""

from __future__ import annotations

from gristmill.scheduling.balance import Load, SharedLoad, Staffing, staff, throughput, with_shared
from gristmill.scheduling.config import UNIT
from gristmill.scheduling.credit import has_room
from gristmill.scheduling.crew import drain, put_back_suspended, start, stop_if_drained
from gristmill.scheduling.feed import is_set_up, may_run
from gristmill.scheduling.placement import Room
from gristmill.scheduling.state import State, StepRec, WorkerRec, WorkerState

_GUESS_US = UNIT
_SURE = 3
"""Completions after which a service time is believed."""
_MILLION_S = UNIT * UNIT


def look(s: State) -> None:
    """Compare what runs with what should run, and move as much as pays."""
    s.looked_at = s.now
    s.look_wanted = ""
    if s.stopping:
        return
    empty = _rooms(s, 0).values()
    active = [
        step
        for step in s.steps
        if step.dedicated and not step.ended and may_run(s, step) and any(room.find(step.spec) for room in empty)
    ]
    for step in s.steps:
        if step.dedicated and step not in active:
            for w in list(step.workers.values()):
                drain(s, w)
    s.taking_turns = False
    if not active:
        return
    loads, shared = loads_of(s, active)
    plan = staff(_rooms(s, s.shared_memory_floor), loads, shared)
    if not plan.complete and s.shared_memory_floor:
        plan = staff(_rooms(s, 0), loads, shared)
    s.taking_turns = not plan.complete
    for step in active:
        step.planned_service_us = step.service.service_us()
    if s.taking_turns:
        _take_turns(s, active)
        return
    _apply(s, active, loads, shared, plan)


def loads_of(s: State, active: list[StepRec]) -> tuple[list[Load], SharedLoad]:
    """Work per source task of each step; once the source has ended, the work that remains."""
    guess = _guess(s)
    demand = _demand(s)
    loads = []
    shared_cpu = 0
    for step in s.steps:
        service = step.service.service_us()
        weight = max(1, (service or max(guess, _running_us(s, step))) * demand[step.index])
        if step in active:
            most = 1 << 30
            if s.source_ended:
                most = max(1, -(-demand[step.index] // (UNIT * step.spec.batch_size)))
            placed = tuple((w.node, w.placement) for w in reversed(_least_missed(step)))
            loads.append(Load(step.index, step.spec, weight, placed, most, step.service.samples >= _SURE))
        elif not step.dedicated and not step.ended and service:
            shared_cpu += step.spec.cpu * weight
    return loads, SharedLoad(shared_cpu, sum(node.cpu for node in s.nodes.values()), s.shared_floor)


def _guess(s: State) -> int:
    known = [step.service.service_us() for step in s.steps if step.dedicated and step.service.samples]
    return sum(known) // len(known) if known else _GUESS_US


def _running_us(s: State, step: StepRec) -> int:
    """How long the longest unit that runs now has been running, per task: a lower bound where nothing has ended yet."""
    return max((s.now - w.head_since for w in step.workers.values() if w.assigned), default=0) // step.spec.batch_size


def _demand(s: State) -> list[int]:
    """Tasks of each step per source task, in millionths; once the source has ended, tasks that remain."""
    demand = []
    tasks = 0 if s.source_ended else UNIT
    for step in s.steps:
        if s.source_ended:
            tasks += step.live * UNIT
        demand.append(max(1, tasks))
        tasks = tasks * step.service.fan_out() // UNIT
    return demand


def _staying(step: StepRec) -> list[WorkerRec]:
    return [w for w in step.workers.values() if w.state <= WorkerState.READY and not w.being_replaced]


def _rooms(s: State, memory_floor: int) -> dict[int, Room]:
    """The nodes as if empty, less the memory that shared steps need."""
    return {n.id: Room(n.cpu, max(0, n.memory - memory_floor), n.room.gpu_memory) for n in s.nodes.values()}


def _apply(s: State, active: list[StepRec], loads: list[Load], shared: SharedLoad, plan: Staffing) -> None:
    counts = plan.counts
    planned = with_shared(plan.throughput, loads, counts, shared)
    have = {step.index: len(_staying(step)) for step in active}
    now = with_shared(throughput(loads, have), loads, have, shared)
    horizon = _horizon(s, now)
    victims = {step.index: _least_missed(step) for step in active}
    grown: dict[int, int] = {}
    for index, node_id, placement in plan.starts:
        step, node = s.steps[index], s.nodes[node_id]
        late = have[index] > 0 and horizon is not None and step.setup_us >= horizon
        if not late and is_set_up(node, step) and node.room.fits(placement):
            start(s, node, step, placement)
            grown[index] = grown.get(index, 0) + 1
    after = {i: n + grown.get(i, 0) for i, n in have.items()}
    reached = with_shared(throughput(loads, after), loads, after, shared)
    short = [step for step in active if counts[step.index] > after[step.index]]
    surplus = [step for step in active if counts[step.index] < after[step.index]]
    leaving = any(w.state >= WorkerState.DRAINING for step in active for w in step.workers.values())
    taken: dict[int, int] = {}
    if surplus and not leaving and _pays(s, short, surplus, reached, planned):
        for step in surplus:
            for w in victims[step.index][: have[step.index] - counts[step.index]]:
                drain(s, w)
                taken[step.index] = taken.get(step.index, 0) + 1
    _explain(s, loads, have, grown, taken, short, now, planned)


def _pays(s: State, short: list[StepRec], surplus: list[StepRec], now: int, planned: int) -> bool:
    """Whether the time gained by a move exceeds what the new workers' setup and the old ones' leaving cost."""
    if now == 0:
        return True
    if planned * 100 < now * 105:
        return False
    horizon = _horizon(s, now)
    if horizon is None:
        horizon = max(s.now, 60 * UNIT)
    setup = max((max(step.setup_us, 0) for step in short), default=0)
    leaving = max(step.service.service_us() * step.spec.batch_size for step in surplus)
    return horizon * (planned - now) // planned > setup + leaving


def _horizon(s: State, rate: int) -> int | None:
    """Microseconds until the run ends at this throughput, or None if that is not known."""
    if rate == 0:
        return None
    if s.source_ended:
        return _MILLION_S // rate
    if s.source_total is None:
        return None
    under_way = max(step.live for step in s.steps)
    return (s.source_total - s.source_taken + under_way) * _MILLION_S // rate


def _least_missed(step: StepRec) -> list[WorkerRec]:
    """Still starting, then idle, then with the least to finish; youngest first."""
    return sorted(_staying(step), key=lambda w: (w.state, len(w.assigned) + len(w.suspended), -w.id))


def _start_somewhere(s: State, step: StepRec) -> bool:
    for node in s.nodes.values():
        if not is_set_up(node, step):
            continue
        placement = node.room.find(step.spec)
        if placement is not None:
            start(s, node, step, placement)
            return True
    return False


def _take_turns(s: State, active: list[StepRec]) -> None:
    """Not every step can have a worker: the step furthest downstream that could run goes first, idle workers make room.

    While it waits no other step gets a worker, or the room that is made for it would never be large enough.
    """
    for step in reversed(active):
        if not _waits_for_turn(s, step) or _start_somewhere(s, step):
            continue
        for other in active:
            for w in list(other.workers.values()):
                if _could_make_room(s, other, w):
                    s.decide(f"{step.spec.name}: its turn; a worker of {other.spec.name} is idle and makes room")
                    put_back_suspended(s, w)
                    drain(s, w)
                    stop_if_drained(s, w)
        return


def _could_make_room(s: State, step: StepRec, w: WorkerRec) -> bool:
    """A dedicated worker that has nothing to do. One that waits for a CPU has."""
    if not w.is_idle or w.state not in (WorkerState.READY, WorkerState.DRAINING):
        return False
    return w.state is WorkerState.DRAINING or not (step.queued and has_room(s, step))


def _waits_for_turn(s: State, step: StepRec) -> bool:
    return (
        step.queued > 0
        and not _staying(step)
        and has_room(s, step)
        and any(is_set_up(node, step) for node in s.nodes.values())
    )


def turn_due(s: State) -> bool:
    """Whether a step waits for a worker while there is room, or a dedicated worker that has nothing to do."""
    starved = [x for x in s.steps if x.dedicated and not x.workers and may_run(s, x) and _waits_for_turn(s, x)]
    if not starved:
        return False
    if any(node.room.find(step.spec) for step in starved for node in s.nodes.values()):
        return True
    return any(_could_make_room(s, step, w) for step in s.steps if step.dedicated for w in step.workers.values())


def refresh_for_suspects(s: State) -> None:
    """A suspect needs a fresh worker: make one by replacing the idlest, if none is coming."""
    for step in s.steps:
        if not step.dedicated or not step.suspects:
            continue
        if any(w.state is not WorkerState.READY or w.is_fresh for w in step.workers.values()):
            continue
        if not step.workers or _start_somewhere(s, step):
            continue
        s.decide(f"{step.spec.name}: a worker is replaced, to try a suspected task in a fresh one")
        drain(s, _least_missed(step)[0])


def _explain(
    s: State,
    loads: list[Load],
    have: dict[int, int],
    grown: dict[int, int],
    taken: dict[int, int],
    short: list[StepRec],
    now: int,
    planned: int,
) -> None:
    names = {load.step: load.spec.name for load in loads}
    if taken:
        givers = ", ".join(f"{names[i]} ({have[i]} to {have[i] - n})" for i, n in taken.items())
        for step in short:
            rate = throughput([x for x in loads if x.step == step.index], have)
            s.decide(
                f"{step.spec.name}: more workers, bottleneck at {_per_s(s, rate)} against {_per_s(s, planned)} "
                f"possible; taken from {givers}"
            )
        if not short:
            s.decide(
                f"shared steps: more CPUs, {_per_s(s, planned)} possible, {_per_s(s, now)} now; taken from {givers}"
            )
    for i, n in grown.items():
        why = f"{_per_s(s, planned)} possible, {_per_s(s, now)} now" if now else "it had none"
        if not s.steps[i].service.samples:
            why = "free room, speed not yet known"
        s.decide(f"{names[i]}: {have[i]} to {have[i] + n} workers; {why}")


def _per_s(s: State, rate: int) -> str:
    if s.source_ended:
        return f"{_MILLION_S / max(rate, 1) / UNIT:.1f} s to the end"
    return f"{rate / UNIT:.3g}/s"
