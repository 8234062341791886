"""The search for the plans of the shortest schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from bound.fluid import Run, play, time_of, value_at
from bound.job import Job, can_hold, work_left
from gristmill.scheduling.simulator.optimum import EPS, Staffing, smallest, staffed

_NEAR = 1.0005
"""How near to the limit a search ends."""
_STARTS = 2
"""How many of the first schedules are improved."""
_EFFORT = 8000
"""How many stages a search computes, so that it is a matter of seconds and no machine's speed changes the result."""
_Score = Callable[[Staffing], float]
_Front = Callable[[Sequence[int]], Sequence[int]]
"""Of the stages that have not ended, those that get workers."""


def _quickest(
    job: Job, work: Sequence[float], have: Staffing | None, waits: Sequence[float], late: float
) -> Staffing | None:
    """The plan that does what is left soonest, if each stage could work all the time; ``late`` is surely enough."""

    def staff(end: float) -> Staffing | None:
        wants = []
        for i, (stage, left) in enumerate(zip(job.stages, work, strict=True)):
            if left <= 0:
                wants.append(0.0)
                continue
            span = end - job.drains[i]
            speed = sum(n * s for n, s in zip(have[i], stage.speeds, strict=True)) if have else 0.0
            ours = span - waits[i]
            new = span - (stage.setup_s if have else max(stage.setup_s, job.arrivals[i]))
            if speed and ours > 0 and left <= speed * ours:
                wants.append(max(left / ours, EPS * 2))
            elif new <= 0:
                return None
            else:
                kept = speed if ours > 0 else 0.0
                wants.append(kept + (left - kept * ours) / new)
        return staffed(job, wants, have)

    low = max(left / stage.capacity for left, stage in zip(work, job.stages, strict=True))
    high = 2 * low
    while staff(high) is None:
        if high > late:
            return None
        low, high = high, 2 * high
    return staff(smallest(lambda end: staff(end) is not None, low, high, 2e-3))


def _fill(job: Job, plan: Staffing, work: Sequence[float], waits: Sequence[float]) -> Staffing:
    """Use the capacity that is left for the stages that would end last, where they last longer than a setup."""
    rows = [list(row) for row in plan]
    open_ = {(i, k) for i, s in enumerate(job.stages) for k, v in enumerate(s.speeds) if v and work[i] > 0}

    def lasts(i: int) -> float:
        speed = sum(n * v for n, v in zip(rows[i], job.stages[i].speeds, strict=True))
        return work[i] / speed if speed else math.inf

    while open_:
        i, k = max(open_, key=lambda at: (lasts(at[0]) + waits[at[0]], job.stages[at[0]].speeds[at[1]], at))
        if lasts(i) < job.stages[i].setup_s:
            open_.discard((i, k))
            continue
        step = max(1, sum(rows[i]) // 8)
        while step:
            rows[i][k] += step
            if can_hold(job, tuple(map(tuple, rows))):
                break
            rows[i][k] -= step
            step //= 2
        else:
            open_.discard((i, k))
    return tuple(map(tuple, rows))


def _moves(job: Job, plan: Staffing, live: Sequence[int]) -> Iterator[Staffing]:
    """Plans a few workers away: some of one stage in the place of some of another, or in free capacity."""
    spots = [(i, k) for i in live for k, speed in enumerate(job.stages[i].speeds) if speed]

    def changed(*changes: tuple[tuple[int, int], int]) -> Staffing | None:
        rows = [list(row) for row in plan]
        for (i, k), by in changes:
            rows[i][k] += by
        new = tuple(map(tuple, rows))
        return new if all(sum(rows[i]) > 0 for (i, _), _ in changes) and can_hold(job, new) else None

    for more in spots:
        for less in [None, *spots]:
            if less == more:
                continue
            n = plan[less[0]][less[1]] if less else 0
            gives = sorted({q for q in (1, 2, 4, n // 4) if 0 < q <= n}) if less else [0]
            for give in gives:
                minus = [(less, -give)] if less else []
                new = changed((more, 1), *minus)
                if new is None:
                    continue
                yield new
                best = 1
                for plus in (2, 4, max(8, plan[more[0]][more[1]] // 4)):
                    if changed((more, plus), *minus) is None:
                        break
                    best = plus
                if best > 1 and (new := changed((more, best), *minus)):
                    yield new
                break


def _climb(job: Job, plan: Staffing, live: Sequence[int], score: _Score, stop: int, near: float = 0.0) -> Staffing:
    """Take any move that helps until none does, the effort is used up or it is near enough."""
    best, seen = score(plan), {plan}
    improved = True
    while improved and job.effort < stop and best > near:
        improved = False
        for new in _moves(job, plan, live):
            if new in seen:
                continue
            seen.add(new)
            value = score(new)
            if value < best - 1e-6:
                plan, best, improved = new, value, True
                break
            if job.effort >= stop:
                break
    return plan


def _replan(
    job: Job, work: Sequence[float], have: Staffing | None, waits: Sequence[float], late: float
) -> Staffing | None:
    """The quickest plan; stages at the end that have no workers wait if not all fit beside one another."""
    left = list(work)
    while any(left):
        plan = _quickest(job, left, have, waits, late)
        last = max(i for i, w in enumerate(left) if w)
        if plan or (have and sum(have[last])):
            return plan
        left[last] = 0.0
    return None


def _start(job: Job, front: _Front) -> Staffing | None:
    active = front(range(len(job.stages)))
    work = [work_left(stage) if i in active else 0.0 for i, stage in enumerate(job.stages)]
    waits = [max(stage.setup_s, at) for stage, at in zip(job.stages, job.arrivals, strict=True)]
    plan = _replan(job, work, None, waits, _ample(job))
    return (
        _fill(job, plan, [w if sum(row) else 0.0 for w, row in zip(work, plan, strict=True)], waits) if plan else None
    )


def _ample(job: Job) -> float:
    """Time enough for one worker of each stage, one after the other."""
    return sum(
        stage.setup_s + at + drain + work_left(stage) / min(speed for speed in stage.speeds if speed)
        for stage, at, drain in zip(job.stages, job.arrivals, job.drains, strict=True)
    )


def steady_plan(job: Job) -> Staffing | None:
    if not all(stage.capacity for stage in job.stages):
        return None
    plan = _start(job, _all)
    if plan is None or not all(map(sum, plan)):
        return None
    return _climb(job, plan, range(len(job.stages)), lambda p: play(job, ((0.0, p),)).score, job.effort + _EFFORT // 4)


def _all(unfinished: Sequence[int]) -> Sequence[int]:
    return unfinished


def _fronts(job: Job) -> Iterator[_Front]:
    """All stages at once, or only the first few that have not ended; of those with GPUs, or of all."""
    yield _all
    gpu = {i for i, stage in enumerate(job.stages) if any(stage.shares)}
    for counted in ([gpu] if gpu else []) + ([set(range(len(job.stages)))] if len(gpu) < len(job.stages) else []):
        widths = range(1, len(counted))
        for width in widths if len(widths) < 5 else (1, 2, 3, len(counted) // 2):

            def front(unfinished: Sequence[int], counted: set[int] = counted, width: int = width) -> Sequence[int]:
                beyond = [i for i in unfinished if i in counted][width:]
                return [i for i in unfinished if not beyond or i < beyond[0]]

            yield front


def _events(job: Job, run: Run) -> Iterator[float]:
    """When a stage ends or its mean changes."""
    yield from run.ends
    for stage, worked in zip(job.stages, run.worked, strict=True):
        for first, _ in stage.paces[1:]:
            yield time_of(worked, first)


def _roll_out(job: Job, run: Run, front: _Front) -> Run:
    """Go on from a schedule's last plan: a new plan at each event, if it helps the stages at the front."""
    now = run.plans[-1][0]
    while True:
        now = min((t for t in _events(job, run) if t > now + 1e-6), default=math.inf)
        if now >= run.finish or math.isinf(now):
            return run
        active = front([i for i, end in enumerate(run.ends) if end > now + 1e-6])
        runs = [run, *(play(job, (*run.plans, (now, plan))) for plan in _replans(job, run, now, active))]
        run = min(runs, key=lambda r: r.rank(active))


def _replans(job: Job, run: Run, now: float, active: Sequence[int]) -> list[Staffing]:
    """Return changes that may be better from now on: free capacity is given away, or everything is planned again."""
    # Its last tasks keep a stage's workers until they are through.
    work = [
        max(work_left(stage, value_at(worked, now)), stage.paces[-1][1]) if i in active else 0.0
        for i, (stage, worked) in enumerate(zip(job.stages, run.worked, strict=True))
    ]
    live = tuple(row if w > 0 else (0,) * len(row) for row, w in zip(run.plans[-1][1], work, strict=True))
    waits = [
        max(0.0, ready - now) if sum(row) else stage.setup_s
        for ready, row, stage in zip(run.readies, live, job.stages, strict=True)
    ]
    plans = [_fill(job, live, work, waits)]
    quickest = _replan(job, work, live, waits, _ample(job))
    if quickest:
        plans += [quickest, _fill(job, _keep(job, quickest, live), work, waits)]
    return [plan for plan in dict.fromkeys(plans) if plan != run.plans[-1][1]]


def _keep(job: Job, plan: Staffing, have: Staffing) -> Staffing:
    """A plan that keeps existing workers where no other stage needs their place."""
    for i, row in enumerate(have):
        for k, n in enumerate(row):
            if n > plan[i][k]:
                kept = tuple(tuple(n if (a, b) == (i, k) else x for b, x in enumerate(r)) for a, r in enumerate(plan))
                plan = kept if can_hold(job, kept) else plan
    return plan


def best_schedule(job: Job, floor: float) -> Run:
    stop = job.effort + _EFFORT
    starts = [(front, plan) for front in _fronts(job) if (plan := _start(job, front))]
    starts += [(_all, plan) for plan in [steady_plan(job)] if plan]
    runs = [(_roll_out(job, play(job, ((0.0, plan),)), front), front) for front, plan in starts]
    runs.sort(key=lambda pair: pair[0].finish)
    best = runs[0][0]
    for nth, (run, front) in enumerate(runs[:_STARTS]):
        if best.finish > floor * _NEAR:
            share = (stop - job.effort) // (_STARTS - nth)
            best = min(best, _improve(job, run, front, job.effort + share, floor * _NEAR), key=lambda run: run.finish)
    return best


def _improve(job: Job, best: Run, front: _Front, stop: int, near: float) -> Run:
    """Search for better plans, from the first to the last of a schedule."""
    nth = 0
    while nth < len(best.plans) and best.finish > near:
        before, (at, plan) = best.plans[:nth], best.plans[nth]

        def go_on(plan: Staffing, before: tuple[tuple[float, Staffing], ...] = before, at: float = at) -> Run:
            return _roll_out(job, play(job, (*before, (at, plan))), front)

        def score(plan: Staffing, go_on: Callable[[Staffing], Run] = go_on) -> float:
            return go_on(plan).score

        share = (stop - job.effort) // 2
        plan = _climb(job, plan, [i for i, row in enumerate(plan) if sum(row)], score, job.effort + share, near)
        best = min(best, go_on(plan), key=lambda run: run.finish)
        nth += 1
    return best
