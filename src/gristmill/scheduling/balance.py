"""Rebalance: pass what is known to the planner, and turn its plan into workers that start and leave."""

from __future__ import annotations

from gristmill.scheduling.commands import Solve
from gristmill.scheduling.dispatch import is_set_up, may_run
from gristmill.scheduling.events import Solved
from gristmill.scheduling.in_flight import running_us
from gristmill.scheduling.moves import apply, start_reserved
from gristmill.scheduling.placement import Capacity
from gristmill.scheduling.planning import PlacedWorker, Problem, SharedDemand, Site, StaffingPlan, StepDemand, solve
from gristmill.scheduling.records import NodeRec, StepRec, WorkerState
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.state import State
from gristmill.scheduling.time_sharing import least_missed, take_turns
from gristmill.scheduling.workers import drain

_GUESS_US = UNIT
_LEAST_WAIT_US = 2 * UNIT
_UNKNOWN_HORIZON_US = 600 * UNIT
"""A source of unknown length is assumed to continue for at least this long."""
_GAP_US = 100
"""The least time between two rebalances, for each node and step."""
_LEAVE_US = 30 * UNIT
"""The longest estimate of the time until other workers have left."""
_CHEAP_SETUP_US = 5 * UNIT
_MARGIN = 20_000
_MOST_MARGIN = 250_000


def rebalance(s: State) -> None:
    """Compare the workers with a new plan, and make the moves that pay."""
    s.balance.begin(s.now, s.config.autoscale_interval_us)
    if s.ending.stopping:
        return
    active = _active(s)
    for step in s.steps:
        if step.dedicated and step not in active:
            for w in list(step.workers.values()):
                drain(s, w)
    for node in s.nodes.values():
        if node.resized:
            _drain_misplaced(s, node)
    s.balance.share_in_time(False)
    if not active:
        return
    start_reserved(s)
    for step in active:
        step.plan.note_service(step.service.service_us())
    problem = problem_of(s, active, s.shared.memory_floor)
    estimates = {x.step: {**x.service_us, -1: s.steps[x.step].setup.mean_us} for x in problem.demands}
    s.balance.note_estimates(estimates)
    _plan(s, problem)


def _active(s: State) -> list[StepRec]:
    """Return the steps with workers of their own that fit on a node and have work, now or later."""
    empty = _empty_nodes(s, 0).values()
    return [
        step
        for step in s.steps
        if step.dedicated
        and not step.ended
        and may_run(s, step)
        and any(capacity.find(step.spec) for capacity in empty)
    ]


def _drain_misplaced(s: State, node: NodeRec) -> None:
    """Drain the workers that a node which became smaller has no capacity for."""
    left = Capacity(node.cpu, node.memory, node.free.gpu_memory)
    for step in s.steps:
        if not step.dedicated:
            continue
        for w in reversed(least_missed(s, step)):
            if w.node != node.id:
                continue
            if left.fits(w.placement):
                left.take(w.placement)
            else:
                s.decide(f"{step.spec.name}: worker {w.id} leaves node {node.id}, which has become too small for it")
                s.balance.vacate((step.index, w.node, w.placement))
                drain(s, w)
    for step in s.steps:
        for where, placement in list(step.plan.reserved):
            if where == node.id and left.fits(placement):
                left.take(placement)
            elif where == node.id:
                step.plan.reserved.remove((where, placement))


def next_turn(s: State) -> None:
    """Give capacity to the step whose turn it is."""
    take_turns(s, _active(s))


def _plan(s: State, problem: Problem) -> None:
    """Make a plan: at once if that is quick, else in the background (`Solve`)."""
    if len(problem.sites) * len(problem.demands) <= s.config.plan_at_once:
        _follow(s, problem, solve(problem))
        return
    s.out.append(Solve(s.balance.solve(problem), problem))


def solved(s: State, e: Solved) -> None:
    """Apply a plan that was made in the background, as far as it is still possible."""
    problem = s.balance.problem
    if e.number != s.balance.solving or problem is None:
        return
    s.balance.solved()
    if not s.ending.stopping:
        _follow(s, problem, e.plan)


def _follow(s: State, problem: Problem, plan: StaffingPlan) -> None:
    active = [s.steps[demand.step] for demand in problem.demands if not s.steps[demand.step].ended]
    if not active:
        return
    if not plan.complete and problem.memory_floor:
        _plan(s, problem_of(s, active, 0))
        return
    s.balance.share_in_time(not plan.complete)
    for step in active:
        step.plan.aim(None if s.balance.taking_turns else plan.counts.get(step.index, 0))
    if s.balance.taking_turns:
        for step in active:
            step.plan.reserved.clear()  # the order of time sharing decides which worker starts where
        take_turns(s, active)
        return
    wait = max(_LEAST_WAIT_US, min(plan.finish_us, plan.stay_us) // 10)
    s.balance.rebalance_by(s.now + min(wait, s.config.autoscale_interval_us))
    apply(s, problem, plan)


def is_due(s: State) -> bool:
    """Whether to rebalance now. On large clusters that takes a while, so it happens less often."""
    if s.balance.solving:
        return False
    if not s.balance.reason:
        return s.now >= s.balance.due_at
    size = len(s.nodes) * len(s.steps)
    return size <= s.config.plan_at_once or not s.running or s.now - s.balance.done_at >= _GAP_US * size


def problem_of(s: State, active: list[StepRec], memory_floor: int) -> Problem:
    """State the problem for the planner."""
    remaining = _remaining(s)
    drains = _drains(s)
    demands = []
    work = 0
    error = 0
    for step in s.steps:
        tasks = remaining[step.index]
        if step in active:
            demands.append(_demand(s, step, tasks, drains[step.index]))
            error = max(error, step.service.error() if step.service.is_known else 0)
        elif not step.dedicated and not step.ended:
            work += step.spec.cpu * (step.service.service_us() * tasks // UNIT)
    times = [step.unit_us for step in active]
    leave = min(sum(times) // len(times), _LEAVE_US)
    capacities = _empty_nodes(s, memory_floor)
    closed = _closed(s, active, capacities)
    sites = tuple(Site(i, s.nodes[i].kind, capacity, closed.get(i, frozenset())) for i, capacity in capacities.items())
    margin = min(_MARGIN + error // 4, _MOST_MARGIN)
    return Problem(sites, tuple(demands), SharedDemand(work, s.shared.cpu_floor), leave, margin, memory_floor)


def _closed(s: State, active: list[StepRec], capacities: dict[int, Capacity]) -> dict[int, frozenset[int]]:
    """Return for each node the steps that cannot start there before `setup_on_node` is done, but can start elsewhere.

    A step that can start nowhere yet gets a place in the plan all the same, so that others do not take it.
    """
    closed: dict[int, frozenset[int]] = {}
    for step in active:
        if not step.spec.node_setup:
            continue
        fits = [i for i, capacity in capacities.items() if capacity.find(step.spec)]
        waits = {i for i in capacities if not is_set_up(s.nodes[i], step)}
        if any(i not in waits for i in fits):
            for i in waits:
                closed[i] = closed.get(i, frozenset()) | {step.index}
    return closed


def _drains(s: State) -> list[int]:
    """Return the time from the last start at each step to the end of the run: the last tasks take longer than most."""
    drains = []
    rest = 0
    for step in reversed(s.steps):
        at_once = step.spec.batch_size * max(1, step.in_flight)
        late = 2 * step.service.deviation_us() * at_once if step.service.is_known else 0
        drains.append(rest + late)
        rest += late + step.unit_us
    return drains[::-1]


def _demand(s: State, step: StepRec, tasks: int, drain: int) -> StepDemand:
    service = service_us(s, step)
    setup = expected_setup_us(s, step)
    workers = []
    for w in reversed(least_missed(s, step)):
        delay = 0
        if w.state is WorkerState.STARTING:
            elapsed = s.now - w.started_at
            # Never longer than that of a new worker, or it would be replaced by one, and that one in its turn.
            delay = min(max(setup - elapsed, elapsed // 8), setup)
        workers.append(PlacedWorker(w.id, w.node, w.placement, delay + drain))
    for n, (node, placement) in enumerate(step.plan.reserved):
        name = -1 - step.index - n * len(s.steps)
        workers.append(PlacedWorker(name, node, placement, setup + min(service, _LEAVE_US) + drain))
    most = 1 << 30
    if s.source.ended:
        most = max(1, -(-tasks // (UNIT * step.spec.batch_size * max(1, step.in_flight))))
    if step.in_flight and step.spec.needs_nothing:
        most = min(most, max(1, sum(node.cpu for node in s.nodes.values()) // UNIT))
    return StepDemand(
        step.index,
        step.spec,
        max(1, tasks),
        service_by_kind(s, step),
        setup + drain,
        tuple(workers),
        most,
        certain=step.service.is_known,
        blocked=_is_blocked(s, step),
    )


def _is_blocked(s: State, step: StepRec) -> bool:
    """Whether an earlier step is not up yet, and the setup of this one costs next to nothing."""
    return 0 <= step.setup.mean_us < _CHEAP_SETUP_US and any(
        x.dedicated and not x.service.is_known and not any(w.state is WorkerState.READY for w in x.workers.values())
        for x in s.steps[: step.index]
    )


def service_by_kind(s: State, step: StepRec) -> dict[int, int]:
    """Return the microseconds per task on each kind of node."""
    service = service_us(s, step)
    services = {}
    for kind in {node.kind for node in s.nodes.values()}:
        own = step.by_kind.get(kind)
        if own is not None and own.samples >= 3:
            services[kind] = own.with_running(_running_us(s, step, kind))
        else:
            services[kind] = service
    return services


def service_us(s: State, step: StepRec) -> int:
    """Return the microseconds per task: measured, with tasks that still run, or else an estimate."""
    running = _running_us(s, step, None)
    if step.service.is_known:
        return step.service.with_running(running)
    return max(_guess(s, step), step.service.part_us, *running, 1)


def _running_us(s: State, step: StepRec, kind: int | None) -> list[int]:
    """Return how long units have been running, per task; on nodes of one kind if it is given."""
    busy = [
        w
        for w in step.workers.values()
        if w.assigned and (kind is None or (w.node in s.nodes and s.nodes[w.node].kind == kind))
    ]
    if step.in_flight:
        return [us for w in busy for us in running_us(s, w)]
    return [(s.now - w.head_since) // len(w.assigned[0].tasks) for w in busy]


def _guess(s: State, step: StepRec) -> int:
    """Estimate the service time of a step that was never measured: as the others, in proportion to their GPUs."""
    share = _share(step)
    known = [
        x.service.service_us() * share // _share(x)
        for x in s.steps
        if x.dedicated and x.service.is_known and x.spec.uses_gpu == step.spec.uses_gpu
    ]
    return sum(known) // len(known) if known else _GUESS_US * share // UNIT


def _share(step: StepRec) -> int:
    return step.spec.gpu or UNIT


def expected_setup_us(s: State, step: StepRec) -> int:
    """Estimate the setup of a new worker: measured, else of an earlier run, else what one has taken so far."""
    if step.setup.mean_us >= 0:
        return step.setup.mean_us
    if step.spec.prior is not None:
        return step.spec.prior.setup_us
    starting = (s.now - w.started_at for w in step.workers.values() if w.state is WorkerState.STARTING)
    return max(starting, default=0)


def _remaining(s: State) -> list[int]:
    """Return the tasks that each step has yet to do, in millionths, with those that are still to be made."""
    if s.source.ended:
        coming = 0
    elif s.source.total is not None:
        coming = max(0, s.source.total - s.source.taken) * UNIT
    else:
        coming = max(s.source.taken * UNIT, _UNKNOWN_HORIZON_US * UNIT // max(1, _slowest_us(s)))
    remaining = []
    for step in s.steps:
        coming += step.live * UNIT
        remaining.append(coming)
        coming = (coming - step.queue.rebuilds * UNIT) * step.service.fan_out() // UNIT
    return remaining


def _slowest_us(s: State) -> int:
    """Return the time per source task of the slowest step, given its workers."""
    slowest = 0
    demand = UNIT
    for step in s.steps:
        if step.dedicated:
            slowest = max(slowest, service_us(s, step) * demand // (UNIT * max(1, len(step.workers))))
        demand = demand * step.service.fan_out() // UNIT
    return slowest


def _empty_nodes(s: State, memory_floor: int) -> dict[int, Capacity]:
    """Return the nodes as if they were empty, less the memory that shared steps need."""
    return {n.id: Capacity(n.cpu, max(0, n.memory - memory_floor), n.free.gpu_memory) for n in s.nodes.values()}
