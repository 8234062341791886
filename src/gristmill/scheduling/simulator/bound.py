"""How short a load's makespan could be, so that a scheduler's makespan can be judged.

Three figures, from the roughest to the most careful:

- :func:`ideal_s`: all inputs at the best steady throughput; filling, setups and the drain cost nothing.
- :func:`limit_s`: no schedule takes less, because some resource or some stage would need more time than there is.
- :func:`bound_s`: the shortest makespan that a planner who knows the mean times finds in a fluid model, in which
  setups, filling and the drain are paid and plans may change. :func:`steady_bound_s` keeps one plan to the end.

All take service times and outputs at their means and queues as unlimited; ``batch_size`` and ``shared_cpu`` are
ignored.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

from gristmill.scheduling.simulator.loads import GB, Load, NodeModel, StageModel
from gristmill.scheduling.simulator.tails import longest_rest_s

_EPS = 1e-9
_QUICKEST_SETUP = 0.9
"""A setup is uniform within 10 % of its mean."""

_NEAR = 1.0005
"""How near to the limit a search ends."""
_STARTS = 2
"""How many of the first schedules are improved."""
_MOST = 100_000
"""Workers of a stage that needs nothing."""
_NO_PLACE = 1e9
"""Share of a GPU that none has."""
_EFFORT = 8000
"""How many stages a search computes, so that it is a matter of seconds and no machine's speed changes the result."""

_Plan = tuple[tuple[int, ...], ...]
"""Workers by stage and kind of node."""
_Curve = list[tuple[float, float]]
"""Tasks by time, cumulative and piecewise linear; two points at one time are a jump."""
_Node = tuple[float, float, tuple[float, ...]]
"""What is free on a node: CPUs, bytes, and the share of each GPU."""
_Score = Callable[[_Plan], float]
_Front = Callable[[Sequence[int]], Sequence[int]]
"""Of the stages that have not ended, those that get workers."""


def optima(load: Load) -> list[tuple[float, float]]:
    """Inputs and the best steady throughput in inputs/s of each phase; a change of a stage's mean starts a new one.

    Exact where nodes are equal and the packing is easy (one node, or GPU shares that divide one another). Workers are
    packed by first fit in a few orders, so with nodes of many kinds or awkward shares the figure may be a little low.
    """
    job = _Job.of(load)
    per_input = [stage.tasks / load.inputs for stage in job.stages]
    cuts = {first / x for stage, x in zip(job.stages, per_input, strict=True) for first, _ in stage.paces}
    starts = sorted(cut for cut in cuts | {0.0} if cut < load.inputs)
    phases = []
    for start, end in zip(starts, [*starts[1:], float(load.inputs)], strict=True):
        middle = (start + end) / 2
        needs = [x * stage.mean_at(middle * x) for stage, x in zip(job.stages, per_input, strict=True)]
        phases.append((end - start, _throughput(job, needs)))
    return phases


def optimum(load: Load) -> float:
    """The best steady throughput in inputs/s with whole workers; over all phases if stages change their means."""
    phases = optima(load)
    return phases[0][1] if len(phases) == 1 else load.inputs / ideal_s(load)


def ideal_s(load: Load) -> float:
    """The makespan at the best steady throughput of each phase; infinite if not every stage finds a place."""
    return sum(inputs / rate if rate else math.inf for inputs, rate in optima(load))


def limit_s(load: Load) -> float:
    """A makespan that no schedule undercuts, with any plans and queues; service times are taken at their means.

    A stage works between the first arrival there can be and the end less the later stages' service times, with no more
    workers than the nodes hold, and each resource must be there for all work and setups of the stages that share it.
    Luck with service times can undercut it in runs of few tasks.
    """
    job = _Job.of(load)
    if not all(stage.capacity for stage in job.stages):
        return math.inf
    low = high = job.last_arrival
    while not _may_last(job, high):
        low, high = high, 2 * high + 1
    return _smallest(lambda end: _may_last(job, end), low, high, 1e-7)


def steady_bound_s(load: Load) -> float:
    """The shortest makespan of one plan that is kept to the end; infinite if not all stages fit beside one another."""
    job = _Job.of(load)
    plan = _steady_plan(job)
    return _without_noise(_drained(job, _run(job, ((0.0, plan),))), limit_s(load)) if plan else math.inf


def bound_s(load: Load) -> float:
    """The shortest makespan found for a planner who knows the mean times and may change the plan during the run.

    Setups, fill and drain are paid; the drain is that of tasks whose times differ, as nobody knows which are long.

    Plans change when a stage ends or its mean changes. A search finds the plans, so a better schedule may exist, but
    never below :func:`limit_s`. Workers that stay may be packed anew on nodes of their kind when a plan changes.
    """
    job = _Job.of(load)
    floor = limit_s(load)
    if math.isinf(floor):
        return math.inf
    return _without_noise(_drained(job, _best_schedule(job, floor)), floor)


def _drained(job: _Job, run: _Run) -> float:
    """When a schedule has ended: the last tasks of a stage are not all average ones, and nobody knows which are not."""
    finish = run.finish
    if math.isinf(finish):
        return finish
    for i, stage in enumerate(job.stages):
        first = max(job.arrivals[i], stage.setup_s)
        mean = stage.mean_at(stage.tasks) / max(stage.speeds)
        under_way = max(1, math.ceil(stage.work() / max(stage.speeds) / max(run.ends[i] - first, mean)))
        rest = mean * (1 + stage.cv * stage.cv) / 2
        late = longest_rest_s(mean, stage.cv, under_way) - max(mean, rest)
        finish = max(finish, run.ends[i] + late + job.drains[i])
    return finish


def _without_noise(finish: float, floor: float) -> float:
    # More than rounding below the limit would be a mistake in one of the two, and is left to be seen.
    return floor if floor * (1 - 1e-6) < finish < floor else finish


@dataclass(frozen=True, slots=True)
class _Kind:
    """Equal nodes."""

    count: int
    cpus: float
    memory: float
    gpus: int


@dataclass(frozen=True, slots=True)
class _Stage:
    cpus: float
    memory: float
    shares: tuple[float, ...]
    """GPUs of a worker on each kind of node."""
    speeds: tuple[float, ...]
    """Of a worker on each kind of node; 0 where it does not fit."""
    setup_s: float
    tasks: float
    outputs: float
    paces: tuple[tuple[float, float], ...]
    """From which task on a task takes how long at speed 1."""
    most: int
    capacity: float
    """Speeds of all workers that fit if no other stage has any."""
    cv: float = 0.0

    @property
    def quickest_s(self) -> float:
        return min(mean for _, mean in self.paces) / max(self.speeds)

    def mean_at(self, done: float) -> float:
        return next(mean for first, mean in reversed(self.paces) if first <= done)

    def work(self, done: float = 0.0) -> float:
        """Seconds at speed 1 that are left after so many tasks."""
        ends = [*(first for first, _ in self.paces[1:]), self.tasks]
        return sum(
            max(0.0, min(end, self.tasks) - max(first, done)) * mean
            for (first, mean), end in zip(self.paces, ends, strict=True)
        )


@dataclass(eq=False, slots=True)
class _Job:
    """A load with equal nodes taken together; stages that get no tasks are left out."""

    kinds: tuple[_Kind, ...]
    stages: tuple[_Stage, ...]
    arrivals: tuple[float, ...] = ()
    """When each stage can have its first task, and a worker for it."""
    drains: tuple[float, ...] = ()
    """What the last task still needs when it leaves the stage."""
    effort: int = 0
    """How many stages were computed in the search so far."""
    packed: dict[tuple[int, tuple[int, ...]], bool] = field(default_factory=dict)

    @property
    def last_arrival(self) -> float:
        return max(a + s.quickest_s + d for a, s, d in zip(self.arrivals, self.stages, self.drains, strict=True))

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, load: Load) -> _Job:
        models = list(dict.fromkeys(load.nodes))
        kinds = tuple(_Kind(load.nodes.count(m), m.cpus, m.memory, m.gpus) for m in models)
        stages: list[_Stage] = []
        tasks = float(load.inputs)
        for i, model in enumerate(load.stages):
            if tasks <= 0:
                break
            needs_gpu = model.gpus > 0 or model.gpu_memory_gb > 0
            shares = tuple(_share(model, node) for node in models)
            cuts = {c.after_tasks for c in load.changes if c.stage == model.name and 0 < c.after_tasks < tasks}
            paces = tuple((float(cut), model.mean_s * load.factor_after(i, cut)) for cut in sorted({0, *cuts}))
            most = model.workers or _MOST
            stage = _Stage(
                model.cpus,
                model.memory_gb * GB,
                shares,
                (),
                model.setup_s,
                tasks,
                model.outputs_per_input,
                paces,
                most,
                0,
                model.cv,
            )
            fits = [_most_on(_empty(kind), stage, k) for k, kind in enumerate(kinds)]
            speeds = tuple(
                (m.gpu_speed if needs_gpu else m.cpu_speed) if n else 0.0 for m, n in zip(models, fits, strict=True)
            )
            capacity, left = 0.0, most
            for k in sorted(range(len(kinds)), key=lambda k: -speeds[k]):
                n = min(left, fits[k] * kinds[k].count)
                capacity, left = capacity + n * speeds[k], left - n
            stages.append(replace(stage, speeds=speeds, capacity=capacity))
            tasks *= model.outputs_per_input
        job = cls(kinds, tuple(stages))
        if all(stage.capacity for stage in stages):
            job.arrivals, job.drains = _windows(stages)
        return job


def _share(model: StageModel, node: NodeModel) -> float:
    """GPUs of a worker on a node, with its memory as a share of one."""
    by_memory = model.gpu_memory_gb / max(node.gpu_memory_gb, _EPS)
    if model.gpus > 1:
        return model.gpus
    return max(model.gpus, by_memory) if by_memory <= 1 else _NO_PLACE


def _windows(stages: Sequence[_Stage]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    arrivals, drains, at = [], [], 0.0
    for stage in stages:
        at = max(at, stage.setup_s * _QUICKEST_SETUP)
        arrivals.append(at)
        at += stage.quickest_s
    for i in range(len(stages)):
        drains.append(sum(stage.quickest_s for stage in stages[i + 1 :]))
    return tuple(arrivals), tuple(drains)


# Packing.


def _empty(kind: _Kind) -> _Node:
    return kind.cpus, kind.memory, (1.0,) * kind.gpus


def _most_on(node: _Node, stage: _Stage, k: int) -> int:
    """How many more workers a node holds."""
    cpus, memory, gpus = node
    most = stage.most
    if stage.cpus:
        most = min(most, int(cpus / stage.cpus + _EPS))
    if stage.memory:
        most = min(most, int(memory / stage.memory + _EPS))
    share = stage.shares[k]
    if share > 1 - _EPS:
        most = min(most, int(sum(free > 1 - _EPS for free in gpus) / share + _EPS))
    elif share > 0:
        most = min(most, sum(int(free / share + _EPS) for free in gpus))
    return most


def _with(node: _Node, stage: _Stage, k: int, n: int) -> _Node:
    """A node with so many workers more; shares go to the fullest GPU with room."""
    cpus, memory, gpus = node
    share = stage.shares[k]
    if share > 1 - _EPS:
        whole = round(n * share)
        gpus = (0.0,) * whole + tuple(sorted(gpus))[: len(gpus) - whole]
    elif share > 0:
        left, shared = n, []
        for free in sorted(gpus):
            here = min(left, int(free / share + _EPS))
            shared.append(max(0.0, free - here * share))
            left -= here
        gpus = tuple(shared)
    return cpus - n * stage.cpus, memory - n * stage.memory, gpus


class _Room:
    """Nodes of one kind on which workers are placed; nodes in the same state are one entry."""

    def __init__(self, kind: _Kind, k: int) -> None:
        self.k = k
        self.nodes: list[tuple[int, _Node]] = [(kind.count, _empty(kind))]

    def place(self, stage: _Stage, n: int, spread: bool) -> int:
        """Place up to ``n`` workers, on few nodes or spread over all; how many found a place."""
        wanted = n
        if spread and n > 1:
            n -= self._place(stage, n, -(-n // sum(count for count, _ in self.nodes)))
        return wanted - n + self._place(stage, n, n)

    def _place(self, stage: _Stage, n: int, most_each: int) -> int:
        nodes: list[tuple[int, _Node]] = []
        placed = 0
        for count, node in self.nodes:
            each = min(most_each, n - placed, _most_on(node, stage, self.k)) if placed < n else 0
            if not each:
                nodes.append((count, node))
                continue
            full = min(count, (n - placed) // each)
            rest = min(each, n - placed - full * each) if full < count else 0
            nodes.append((full, _with(node, stage, self.k, each)))
            if rest:
                nodes.append((1, _with(node, stage, self.k, rest)))
            if count - full - (rest > 0):
                nodes.append((count - full - (rest > 0), node))
            placed += full * each + rest
        self.nodes = nodes
        return placed


def _orders(job: _Job) -> Iterator[tuple[list[int], bool]]:
    """In which orders stages are placed, and whether their workers are spread."""
    stages = job.stages
    by_gpu = sorted(range(len(stages)), key=lambda i: (-max(stages[i].shares), -stages[i].cpus, -stages[i].memory))
    yield by_gpu, False
    if sum(kind.count for kind in job.kinds) > 1:
        by_cpu = sorted(range(len(stages)), key=lambda i: (-stages[i].cpus, -max(stages[i].shares)))
        yield by_gpu, True
        yield by_cpu, False
        yield by_cpu, True


def _fits(job: _Job, plan: _Plan) -> bool:
    if any(sum(row) > stage.most for row, stage in zip(plan, job.stages, strict=True)):
        return False
    return all(_kind_fits(job, k, tuple(row[k] for row in plan)) for k in range(len(job.kinds)))


def _kind_fits(job: _Job, k: int, counts: tuple[int, ...]) -> bool:
    known = job.packed.get((k, counts))
    if known is None:
        kind = job.kinds[k]
        pairs = list(zip(counts, job.stages, strict=True))
        known = (
            sum(n * stage.cpus for n, stage in pairs) <= kind.count * kind.cpus + _EPS
            and sum(n * stage.shares[k] for n, stage in pairs) <= kind.count * kind.gpus + _EPS
            and sum(n * stage.memory for n, stage in pairs) <= kind.count * kind.memory * (1 + _EPS)
            and any(_packs(job, k, counts, order, spread) for order, spread in _orders(job))
        )
        job.packed[k, counts] = known
    return known


def _packs(job: _Job, k: int, counts: tuple[int, ...], order: list[int], spread: bool) -> bool:
    room = _Room(job.kinds[k], k)
    return all(room.place(job.stages[i], counts[i], spread) == counts[i] for i in order if counts[i])


def _staff(job: _Job, wants: Sequence[float], have: _Plan | None = None) -> _Plan | None:
    """Workers whose speeds add up to what each stage wants, those that there are first; None if they do not fit."""
    if any(want > stage.capacity + _EPS for want, stage in zip(wants, job.stages, strict=True)):
        return None
    for order, spread in _orders(job):
        rooms = [_Room(kind, k) for k, kind in enumerate(job.kinds)]
        plan = [[0] * len(rooms) for _ in job.stages]
        for i in order:
            stage, left, heads = job.stages[i], wants[i], job.stages[i].most
            # A stage without a GPU leaves the nodes that have some to the others while it can.
            kinds = sorted(
                range(len(rooms)), key=lambda k: (stage.shares[k] == 0 and job.kinds[k].gpus > 0, -stage.speeds[k])
            )
            tries = [(k, have[i][k]) for k in kinds if have and have[i][k]] + [(k, heads) for k in kinds]
            for k, most in tries:
                if left > _EPS and stage.speeds[k]:
                    n = rooms[k].place(stage, min(most, heads, math.ceil(left / stage.speeds[k] - _EPS)), spread)
                    plan[i][k] += n
                    heads -= n
                    left -= n * stage.speeds[k]
            if left > _EPS:
                break
        else:
            return tuple(map(tuple, plan))
    return None


def _throughput(job: _Job, needs: Sequence[float]) -> float:
    """The best throughput if each unit takes a stage so many seconds at speed 1."""

    def holds(rate: float) -> bool:
        return _staff(job, [rate * need * (1 - _EPS) for need in needs]) is not None

    high = min(stage.capacity / need for stage, need in zip(job.stages, needs, strict=True))
    if not high or holds(high):
        return high
    if len({speed for stage in job.stages for speed in stage.speeds if speed}) == 1:
        # All workers are alike, so the optimum is that of some stage with a whole number of workers.
        speed = max(job.stages[0].speeds)
        rates = {
            n * speed / need
            for s, need in zip(job.stages, needs, strict=True)
            for n in range(1, round(s.capacity / speed) + 1)
        }
        ordered = sorted(rate for rate in rates if rate <= high)
        at = bisect_left(ordered, True, key=lambda rate: not holds(rate))
        return ordered[at - 1] if at else 0.0
    period = _smallest(lambda seconds: holds(1 / seconds), 1 / high, 1e6 / high, 1e-7)
    return 1 / period if holds(1 / period) else 0.0


def _smallest(holds: Callable[[float], bool], low: float, high: float, precision: float) -> float:
    """The smallest number from which on something holds; it is taken to hold at ``high``."""
    while high - low > precision * high:
        middle = math.sqrt(low * high) if low > 0 and high > 4 * low else (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _may_last(job: _Job, end: float) -> bool:
    """Whether nothing provable speaks against a makespan."""
    rows = []
    for stage, arrival, drain in zip(job.stages, job.arrivals, job.drains, strict=True):
        # The first of many workers may be ready early, but they take the mean setup together.
        span = end - drain - max(arrival, stage.setup_s)
        if span <= 0 or stage.work() > stage.capacity * span * (1 + _EPS):
            return False
        # No worker works longer than the span, so that many must be set up.
        workers = math.ceil(stage.work() / max(stage.speeds) / span - 1e-6)
        rows.append((stage, max(0.0, arrival - stage.setup_s), drain, workers))
    with_gpu = [row for row in rows if any(row[0].shares)]
    without = [row for row in rows if not any(row[0].shares)]
    return (
        _suffices(job, with_gpu, end, gpu=True)
        and _suffices(job, rows, end, gpu=False)
        and _suffices(job, without, end, gpu=False)
    )


def _suffices(job: _Job, rows: Sequence[tuple[_Stage, float, float, int]], end: float, gpu: bool) -> bool:
    """Whether there are enough GPUs or CPUs for stages, each with its first start, its drain and its setups.

    Every node counts with the best speed that one of the stages has there.
    """
    speeds = [max((s.speeds[k] for s, *_ in rows), default=1.0) for k in range(len(job.kinds))]
    slowest = min((speed for speed in speeds if speed), default=1.0)
    have = sum(kind.count * (kind.gpus if gpu else kind.cpus) * v for kind, v in zip(job.kinds, speeds, strict=True))
    for start in {start for _, start, _, _ in rows}:
        for drain in {drain for _, _, drain, _ in rows}:
            need = sum(
                (min(s.shares) if gpu else s.cpus) * (s.work() + s.setup_s * n * slowest)
                for s, s_start, s_drain, n in rows
                if s_start >= start and s_drain >= drain
            )
            if need and need > have * (end - drain - start) * (1 + _EPS):
                return False
    return True


# The fluid model.


@dataclass(frozen=True, slots=True)
class _Run:
    """What became of a schedule: plans, each with the time from which it holds."""

    plans: tuple[tuple[float, _Plan], ...]
    ends: tuple[float, ...]
    worked: tuple[_Curve, ...]
    readies: tuple[float, ...]
    """When the workers of the last plan are ready on average, by stage."""

    @property
    def finish(self) -> float:
        return max(self.ends)

    @property
    def score(self) -> float:
        """The finish; of equals, the one whose stages end early leaves more room for what comes."""
        return self.finish + 1e-4 * sum(self.ends) / len(self.ends)

    def rank(self, stages: Sequence[int]) -> tuple[int, float]:
        """The score by these stages alone; those that never end count most."""
        ends = [self.ends[i] for i in stages if math.isfinite(self.ends[i])]
        return len(stages) - len(ends), max(ends) + 1e-4 * sum(ends) / len(ends) if ends else 0.0


def _run(job: _Job, plans: tuple[tuple[float, _Plan], ...]) -> _Run:
    arrivals: _Curve = [(0.0, job.stages[0].tasks)]
    ends, worked, readies = [], [], []
    for i, stage in enumerate(job.stages):
        steps, ready = _staffing(stage, i, plans)
        out, work = _serve(stage, arrivals, steps)
        job.effort += 1
        readies.append(ready)
        worked.append(work)
        ends.append(out[-1][0])
        if math.isinf(ends[-1]):
            rest = len(job.stages) - len(ends)
            return _Run(
                plans, (*ends, *[math.inf] * rest), (*worked, *[[(0.0, 0.0)]] * rest), (*readies, *[0.0] * rest)
            )
        arrivals = [(t, y * stage.outputs) for t, y in out]
    return _Run(plans, tuple(ends), tuple(worked), tuple(readies))


def _staffing(
    stage: _Stage, i: int, plans: Sequence[tuple[float, _Plan]]
) -> tuple[list[tuple[float, float, int]], float]:
    """From when on which speed and how many workers are ready; and when those at the end are ready on average."""
    moves: list[tuple[float, float, int]] = []
    heads, readies = 0, 0.0
    for k, speed in enumerate(stage.speeds):
        groups: list[tuple[float, int]] = []
        have = 0
        for at, plan in plans:
            more = plan[i][k] - have
            have = plan[i][k]
            if more > 0:
                groups.append((at + stage.setup_s, more))
            while more < 0:
                ready, n = groups.pop()
                gone = min(n, -more)
                if ready < at:
                    moves += [(ready, gone * speed, gone), (at, -gone * speed, -gone)]
                if n > gone:
                    groups.append((ready, n - gone))
                more += gone
        moves += [(ready, n * speed, n) for ready, n in groups]
        heads += have
        readies += sum(ready * n for ready, n in groups)
    steps, total, n = [(0.0, 0.0, 0)], 0.0, 0
    for at, speed, count in sorted(moves):
        total, n = total + speed, n + count
        if steps[-1][0] == at:
            steps.pop()
        steps.append((at, total if n else 0.0, n))
    return steps, readies / heads if heads else 0.0


def _serve(stage: _Stage, arrivals: _Curve, steps: list[tuple[float, float, int]]) -> tuple[_Curve, _Curve]:
    """What a stage puts out, and how much it has worked, both in tasks.

    Work flows at the speed of the workers while there is some. A task is started as soon as it is there and a worker is
    free, so starts are ahead of the work by one task for each worker, and every output follows its
    start by a service time.
    """
    goal, paces = stage.tasks, stage.paces
    eps = 1e-9 * goal
    out: _Curve = [(0.0, 0.0)]
    worked: _Curve = [(0.0, 0.0)]
    t = done = 0.0
    coming = step = pace = 0
    last_arrival, last_step, last_pace = len(arrivals), len(steps) - 1, len(paces) - 1
    while True:
        while coming < last_arrival and arrivals[coming][0] <= t + _EPS:
            coming += 1
        while step < last_step and steps[step + 1][0] <= t + _EPS:
            step += 1
        while pace < last_pace and paces[pace + 1][0] <= done + eps:
            pace += 1
        arrived = slope = 0.0
        then = arrivals[coming][0] if coming < last_arrival else math.inf
        if coming:
            since, arrived = arrivals[coming - 1]
            if coming < last_arrival:
                slope = (arrivals[coming][1] - arrived) / (then - since)
                arrived += slope * (t - since)
        _, speed, n = steps[step]
        mean = paces[pace][1]
        takes = mean * n / speed if n else 0.0
        started = min(arrived, done + n)
        x, y = out[-1]
        if n:
            x = max(x, t + takes)
            out.append((x, y))
            if started > y:
                out.append((x, started))
        if started >= goal - eps:
            out[-1] = (out[-1][0], goal)
            worked.append((max(t, out[-1][0]), goal))
            return out, worked
        limit = speed / mean
        backlog = arrived - done > eps
        rate = limit if backlog else min(limit, slope)
        if step < last_step:
            then = min(then, steps[step + 1][0])
        if rate > 0:
            if pace < last_pace:
                then = min(then, t + (paces[pace + 1][0] - done) / rate)
            if arrived >= goal - eps:
                then = min(then, t + max(0.0, goal - n - done) / rate)
        if backlog and limit > slope:
            then = min(then, t + (arrived - done) / (limit - slope))
        if math.isinf(then):
            out.append((math.inf, goal))
            return out, worked
        then = max(then, t + _EPS)
        arrived_then = arrived + slope * (then - t)
        done_then = min(arrived_then, done + rate * (then - t))
        if n:
            y = out[-1][1]
            ahead, ahead_then = arrived - done - n, arrived_then - done_then - n
            if ahead * ahead_then < 0:
                part = ahead / (ahead - ahead_then)
                cross = min(done + n + part * (done_then - done), goal)
                if cross > y:
                    out.append((t + part * (then - t) + takes if t + part * (then - t) + takes > x else x, cross))
            started = min(arrived_then, done_then + n)
            out.append((max(out[-1][0], then + takes), max(out[-1][1], started)))
        t, done = then, done_then
        worked.append((t, done))


def _value_at(curve: _Curve, t: float) -> float:
    at = bisect_left(curve, (t, math.inf))
    if at == len(curve):
        return curve[-1][1]
    (t0, y0), (t1, y1) = curve[max(0, at - 1)], curve[at]
    return y0 if t1 <= t0 else y0 + (y1 - y0) * max(0.0, t - t0) / (t1 - t0)


def _time_of(curve: _Curve, y: float) -> float:
    for (t0, y0), (t1, y1) in pairwise(curve):
        if y0 < y <= y1:
            return t0 + (t1 - t0) * (y - y0) / (y1 - y0)
    return math.inf


# The search for plans.


def _quickest(
    job: _Job, work: Sequence[float], have: _Plan | None, waits: Sequence[float], late: float
) -> _Plan | None:
    """The plan that does what is left soonest, if each stage could work all the time; ``late`` is surely enough."""

    def staff(end: float) -> _Plan | None:
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
                wants.append(max(left / ours, _EPS * 2))
            elif new <= 0:
                return None
            else:
                kept = speed if ours > 0 else 0.0
                wants.append(kept + (left - kept * ours) / new)
        return _staff(job, wants, have)

    low = max(left / stage.capacity for left, stage in zip(work, job.stages, strict=True))
    high = 2 * low
    while staff(high) is None:
        if high > late:
            return None
        low, high = high, 2 * high
    return staff(_smallest(lambda end: staff(end) is not None, low, high, 2e-3))


def _fill(job: _Job, plan: _Plan, work: Sequence[float], waits: Sequence[float]) -> _Plan:
    """Use the room that is left for the stages that would end last, where they last longer than a setup."""
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
            if _fits(job, tuple(map(tuple, rows))):
                break
            rows[i][k] -= step
            step //= 2
        else:
            open_.discard((i, k))
    return tuple(map(tuple, rows))


def _moves(job: _Job, plan: _Plan, live: Sequence[int]) -> Iterator[_Plan]:
    """Plans a few workers away: some of one stage in the place of some of another, or in free room."""
    spots = [(i, k) for i in live for k, speed in enumerate(job.stages[i].speeds) if speed]

    def changed(*changes: tuple[tuple[int, int], int]) -> _Plan | None:
        rows = [list(row) for row in plan]
        for (i, k), by in changes:
            rows[i][k] += by
        new = tuple(map(tuple, rows))
        return new if all(sum(rows[i]) > 0 for (i, _), _ in changes) and _fits(job, new) else None

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


def _climb(job: _Job, plan: _Plan, live: Sequence[int], score: _Score, stop: int, near: float = 0.0) -> _Plan:
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


def _plan_anew(
    job: _Job, work: Sequence[float], have: _Plan | None, waits: Sequence[float], late: float
) -> _Plan | None:
    """The quickest plan; stages at the end that have no workers wait if not all fit beside one another."""
    left = list(work)
    while any(left):
        plan = _quickest(job, left, have, waits, late)
        last = max(i for i, w in enumerate(left) if w)
        if plan or (have and sum(have[last])):
            return plan
        left[last] = 0.0
    return None


def _start(job: _Job, front: _Front) -> _Plan | None:
    active = front(range(len(job.stages)))
    work = [stage.work() if i in active else 0.0 for i, stage in enumerate(job.stages)]
    waits = [max(stage.setup_s, at) for stage, at in zip(job.stages, job.arrivals, strict=True)]
    plan = _plan_anew(job, work, None, waits, _ample(job))
    return (
        _fill(job, plan, [w if sum(row) else 0.0 for w, row in zip(work, plan, strict=True)], waits) if plan else None
    )


def _ample(job: _Job) -> float:
    """Time enough for one worker of each stage, one after the other."""
    return sum(
        stage.setup_s + at + drain + stage.work() / min(speed for speed in stage.speeds if speed)
        for stage, at, drain in zip(job.stages, job.arrivals, job.drains, strict=True)
    )


def _steady_plan(job: _Job) -> _Plan | None:
    if not all(stage.capacity for stage in job.stages):
        return None
    plan = _start(job, _all)
    if plan is None or not all(map(sum, plan)):
        return None
    return _climb(job, plan, range(len(job.stages)), lambda p: _run(job, ((0.0, p),)).score, job.effort + _EFFORT // 4)


def _all(unfinished: Sequence[int]) -> Sequence[int]:
    return unfinished


def _fronts(job: _Job) -> Iterator[_Front]:
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


def _events(job: _Job, run: _Run) -> Iterator[float]:
    """When a stage ends or its mean changes."""
    yield from run.ends
    for stage, worked in zip(job.stages, run.worked, strict=True):
        for first, _ in stage.paces[1:]:
            yield _time_of(worked, first)


def _roll_out(job: _Job, run: _Run, front: _Front) -> _Run:
    """Go on from a schedule's last plan: a new plan at each event, if it helps the stages at the front."""
    now = run.plans[-1][0]
    while True:
        now = min((t for t in _events(job, run) if t > now + 1e-6), default=math.inf)
        if now >= run.finish or math.isinf(now):
            return run
        active = front([i for i, end in enumerate(run.ends) if end > now + 1e-6])
        runs = [run, *(_run(job, (*run.plans, (now, plan))) for plan in _replans(job, run, now, active))]
        run = min(runs, key=lambda r: r.rank(active))


def _replans(job: _Job, run: _Run, now: float, active: Sequence[int]) -> list[_Plan]:
    """What may be better from now on: the room that became free given away, or everything planned anew."""
    # Its last tasks keep a stage's workers until they are through.
    work = [
        max(stage.work(_value_at(worked, now)), stage.paces[-1][1]) if i in active else 0.0
        for i, (stage, worked) in enumerate(zip(job.stages, run.worked, strict=True))
    ]
    live = tuple(row if w > 0 else (0,) * len(row) for row, w in zip(run.plans[-1][1], work, strict=True))
    waits = [
        max(0.0, ready - now) if sum(row) else stage.setup_s
        for ready, row, stage in zip(run.readies, live, job.stages, strict=True)
    ]
    plans = [_fill(job, live, work, waits)]
    quickest = _plan_anew(job, work, live, waits, _ample(job))
    if quickest:
        plans += [quickest, _fill(job, _keep(job, quickest, live), work, waits)]
    return [plan for plan in dict.fromkeys(plans) if plan != run.plans[-1][1]]


def _keep(job: _Job, plan: _Plan, have: _Plan) -> _Plan:
    """A plan with the workers that there are kept where they are in nobody's way."""
    for i, row in enumerate(have):
        for k, n in enumerate(row):
            if n > plan[i][k]:
                kept = tuple(tuple(n if (a, b) == (i, k) else x for b, x in enumerate(r)) for a, r in enumerate(plan))
                plan = kept if _fits(job, kept) else plan
    return plan


def _best_schedule(job: _Job, floor: float) -> _Run:
    stop = job.effort + _EFFORT
    starts = [(front, plan) for front in _fronts(job) if (plan := _start(job, front))]
    starts += [(_all, plan) for plan in [_steady_plan(job)] if plan]
    runs = [(_roll_out(job, _run(job, ((0.0, plan),)), front), front) for front, plan in starts]
    runs.sort(key=lambda pair: pair[0].finish)
    best = runs[0][0]
    for nth, (run, front) in enumerate(runs[:_STARTS]):
        if best.finish > floor * _NEAR:
            share = (stop - job.effort) // (_STARTS - nth)
            best = min(best, _improve(job, run, front, job.effort + share, floor * _NEAR), key=lambda run: run.finish)
    return best


def _improve(job: _Job, best: _Run, front: _Front, stop: int, near: float) -> _Run:
    """Search for better plans, from the first to the last of a schedule."""
    nth = 0
    while nth < len(best.plans) and best.finish > near:
        before, (at, plan) = best.plans[:nth], best.plans[nth]

        def go_on(plan: _Plan, before: tuple[tuple[float, _Plan], ...] = before, at: float = at) -> _Run:
            return _roll_out(job, _run(job, (*before, (at, plan))), front)

        def score(plan: _Plan, go_on: Callable[[_Plan], _Run] = go_on) -> float:
            return go_on(plan).score

        share = (stop - job.effort) // 2
        plan = _climb(job, plan, [i for i, row in enumerate(plan) if sum(row)], score, job.effort + share, near)
        best = min(best, go_on(plan), key=lambda run: run.finish)
        nth += 1
    return best
