"""How many workers each step should have, and where, so that the run ends soonest.

A run ends when its last step has done what remains for it. For a moment T each step needs so many workers that
together they do its remaining tasks until then: running workers from now on, new workers after their setup. The plan is
the earliest T for which all these workers fit the nodes, found by bisection. Running workers stay where they are unless
T becomes noticeably earlier if they leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from gristmill.scheduling.placement import Placement
from gristmill.scheduling.planning.context import AT_LAST, PlanContext, Strategy
from gristmill.scheduling.planning.draft import Draft
from gristmill.scheduling.planning.packing import FOREVER, WorkerPool
from gristmill.scheduling.planning.problem import Problem, StaffingPlan, StepDemand
from gristmill.scheduling.planning.repack import repacked
from gristmill.scheduling.settings import UNIT

_GRAIN = 10
"""T is found to this power of a half."""


def finish_us(demand: StepDemand, kinds: Mapping[int, int]) -> int:
    """Return when a step would end with the workers it has. ``kinds`` names the kind of each node."""
    pool = WorkerPool(demand.tasks)
    for worker in demand.workers:
        if worker.node in kinds:
            pool.add(worker.delay_us, demand.service_us[kinds[worker.node]])
    return pool.finish()


def solve(problem: Problem) -> StaffingPlan:
    """Return the plan for a problem."""
    if not problem.demands:
        return StaffingPlan()
    context = PlanContext(problem)
    least, stay = _as_many_as_fit(context, False)
    if stay is None:
        filled = _filled(Draft(context, AT_LAST, least, False))
        least, move = _as_many_as_fit(context, True)
        if move is None:
            return StaffingPlan({demand.step: 0 for demand in problem.demands}, complete=False)
        aim = AT_LAST
    else:
        filled = _filled(_earliest(context, least, False, stay))
        least = [n if demand.spec.workers else 1 for demand, n in zip(problem.demands, filled.count, strict=True)]
        end = filled.finish()
        aim = end - _part(end, problem.margin)
        move = None
        if context.could(aim, least, True):
            move = _try(context, aim, least, True)
    if move is None:
        ends = filled.finish()
        filled.lend(ends)
        return _plan(filled, ends)
    move = _earliest(context, least, True, move)
    end = min(move.until, move.finish())
    move = _with_fewer_leaves(move, min(aim, end + _part(end, problem.margin // 2)))
    ends = filled.finish()
    if not move.leaves:
        move = _filled(move)
    move.lend(move.finish())
    return _plan(move, ends)


def _part(us: int, millionths: int) -> int:
    return us * millionths // UNIT


def _filled(draft: Draft) -> Draft:
    draft.fill(True)
    draft.fill(False)
    return draft


def _as_many_as_fit(context: PlanContext, may_leave: bool) -> tuple[list[int], Draft | None]:
    """Place one worker per step, and of fixed numbers as many as fit, in proportion; None if not even one fits."""

    def part(of_1024: int) -> list[int]:
        least = []
        for demand, have in zip(context.demands, context.have, strict=True):
            n = max(1, min(demand.spec.workers or 1, demand.most) * of_1024 // 1024)
            least.append(n if may_leave or demand.spec.workers is None else max(n, have))
        return least

    def tried(of_1024: int) -> Draft | None:
        least = part(of_1024)
        if not context.could(AT_LAST, least, may_leave):
            return None
        draft = _try(context, AT_LAST, least, may_leave)
        if draft is None and may_leave:
            draft = repacked(context, least)
        return draft

    draft = tried(1024)
    if draft is not None or all(demand.spec.workers is None for demand in context.demands):
        return part(1024), draft
    low, high = 0, 1024
    draft = tried(0)
    while draft is not None and low < high - 1:
        middle = (low + high) // 2
        better = tried(middle) if part(middle) != part(low) else draft
        if better is None:
            high = middle
        else:
            low, draft = middle, better
    return part(low), draft


def _try(context: PlanContext, until: int, least: Sequence[int], may_leave: bool) -> Draft | None:
    """Return a draft by the first strategy that succeeds."""
    return next(
        (x for strategy in context.strategies if (x := _by(strategy, context, until, least, may_leave)) is not None),
        None,
    )


def _by(strategy: Strategy, context: PlanContext, until: int, least: Sequence[int], may_leave: bool) -> Draft | None:
    draft = Draft(context, until, least, may_leave)
    return draft if draft.build(strategy) else None


def _earliest(context: PlanContext, least: list[int], may_leave: bool, best: Draft) -> Draft:
    """Return the draft that ends soonest; ``best`` is a feasible one."""
    high = min(best.until, best.finish())
    bound = context.bound(least, may_leave, high)
    for n, strategy in enumerate(context.strategies):
        low, stride = bound, max(1, bound >> _GRAIN)
        sooner = high - max(1, high >> _GRAIN)
        while high - low > max(1, low >> _GRAIN):
            # First near the bound, in growing strides. A further strategy must improve on the best one first.
            middle = sooner if n and low == bound else min(low + stride, (low + high) // 2)
            tried = _by(strategy, context, middle, least, may_leave)
            if tried is not None:
                best, high, stride = tried, min(middle, tried.finish()), FOREVER
                low += low == bound
            elif middle == sooner:
                break
            else:
                low, stride = middle, stride * 2
    return best


def _with_fewer_leaves(best: Draft, until: int) -> Draft:
    """Return another draft that ends by ``until``, if fewer workers leave for it."""
    calm = _try(best.context, until, best.least, True)
    return calm if calm is not None and calm.n_leaves < best.n_leaves else best


def _plan(draft: Draft, stay_us: int) -> StaffingPlan:
    context = draft.context
    steps = [demand.step for demand in context.demands]
    starts: list[tuple[int, int, Placement]] = []
    later: list[tuple[int, int, Placement]] = []
    for i, nodes, placements, _, now in draft.starts:
        (starts if now else later).extend(product((steps[i],), nodes, placements))
    return StaffingPlan(
        dict(zip(steps, draft.count, strict=True)),
        starts,
        later,
        _leaving_workers(draft),
        draft.finish(),
        stay_us,
        {step: pool.finish() for step, pool in zip(steps, draft.pools(), strict=True)},
    )


def _leaving_workers(draft: Draft) -> list[int]:
    """Return the workers that leave: of interchangeable ones the least useful."""
    wanted: dict[tuple[int, int, int, tuple[int, ...]], int] = {}
    for slot_id, nodes in draft.leaves:
        slot = draft.context.slots[slot_id]
        for node in nodes:
            key = (slot.demand, node, slot.delay_us, slot.placement.gpus)
            wanted[key] = wanted.get(key, 0) + 1
    leavers = []
    for i in dict.fromkeys(key[0] for key in wanted):
        for worker in reversed(draft.context.demands[i].workers):
            key = (i, worker.node, worker.delay_us, worker.placement.gpus)
            if wanted.get(key):
                wanted[key] -= 1
                leavers.append(worker.id)
    return leavers
