"""A load with equal nodes taken together, and what fits on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from gristmill.scheduling.simulator.loads import GB, Load, NodeModel, StageModel

EPS = 1e-9
_QUICKEST_SETUP = 0.9
"""A setup is uniform within 10 % of its mean."""
_MOST = 100_000
"""Workers of a stage that needs nothing."""
_NO_PLACE = 1e9
"""Share of a GPU that none has."""
Plan = tuple[tuple[int, ...], ...]
"""Workers by stage and kind of node."""
_Node = tuple[float, float, tuple[float, ...]]
"""What is free on a node: CPUs, bytes, and the share of each GPU."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Equal nodes."""

    count: int
    cpus: float
    memory: float
    gpus: int


@dataclass(frozen=True, slots=True)
class Stage:
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
class Job:
    """A load with equal nodes taken together; stages that get no tasks are left out."""

    kinds: tuple[_Kind, ...]
    stages: tuple[Stage, ...]
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
    def of(cls, load: Load) -> Job:
        models = list(dict.fromkeys(load.nodes))
        kinds = tuple(_Kind(load.nodes.count(m), m.cpus, m.memory, m.gpus) for m in models)
        stages: list[Stage] = []
        tasks = float(load.inputs)
        for i, model in enumerate(load.stages):
            if tasks <= 0:
                break
            needs_gpu = model.gpus > 0 or model.gpu_memory_gb > 0
            shares = tuple(_share(model, node) for node in models)
            cuts = {c.after_tasks for c in load.changes if c.stage == model.name and 0 < c.after_tasks < tasks}
            paces = tuple((float(cut), model.mean_s * load.factor_after(i, cut)) for cut in sorted({0, *cuts}))
            most = model.workers or _MOST
            stage = Stage(
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
    by_memory = model.gpu_memory_gb / max(node.gpu_memory_gb, EPS)
    if model.gpus > 1:
        return model.gpus
    return max(model.gpus, by_memory) if by_memory <= 1 else _NO_PLACE


def _windows(stages: Sequence[Stage]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    arrivals, drains, at = [], [], 0.0
    for stage in stages:
        at = max(at, stage.setup_s * _QUICKEST_SETUP)
        arrivals.append(at)
        at += stage.quickest_s
    for i in range(len(stages)):
        drains.append(sum(stage.quickest_s for stage in stages[i + 1 :]))
    return tuple(arrivals), tuple(drains)


def _empty(kind: _Kind) -> _Node:
    return kind.cpus, kind.memory, (1.0,) * kind.gpus


def _most_on(node: _Node, stage: Stage, k: int) -> int:
    """How many more workers a node holds."""
    cpus, memory, gpus = node
    most = stage.most
    if stage.cpus:
        most = min(most, int(cpus / stage.cpus + EPS))
    if stage.memory:
        most = min(most, int(memory / stage.memory + EPS))
    share = stage.shares[k]
    if share > 1 - EPS:
        most = min(most, int(sum(free > 1 - EPS for free in gpus) / share + EPS))
    elif share > 0:
        most = min(most, sum(int(free / share + EPS) for free in gpus))
    return most


def _with(node: _Node, stage: Stage, k: int, n: int) -> _Node:
    """A node with so many workers more; shares go to the fullest GPU with room."""
    cpus, memory, gpus = node
    share = stage.shares[k]
    if share > 1 - EPS:
        whole = round(n * share)
        gpus = (0.0,) * whole + tuple(sorted(gpus))[: len(gpus) - whole]
    elif share > 0:
        left, shared = n, []
        for free in sorted(gpus):
            here = min(left, int(free / share + EPS))
            shared.append(max(0.0, free - here * share))
            left -= here
        gpus = tuple(shared)
    return cpus - n * stage.cpus, memory - n * stage.memory, gpus


class _Room:
    """Nodes of one kind on which workers are placed; nodes in the same state are one entry."""

    def __init__(self, kind: _Kind, k: int) -> None:
        self.k = k
        self.nodes: list[tuple[int, _Node]] = [(kind.count, _empty(kind))]

    def place(self, stage: Stage, n: int, spread: bool) -> int:
        """Place up to ``n`` workers, on few nodes or spread over all; how many found a place."""
        wanted = n
        if spread and n > 1:
            n -= self._place(stage, n, -(-n // sum(count for count, _ in self.nodes)))
        return wanted - n + self._place(stage, n, n)

    def _place(self, stage: Stage, n: int, most_each: int) -> int:
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


def _orders(job: Job) -> Iterator[tuple[list[int], bool]]:
    """In which orders stages are placed, and whether their workers are spread."""
    stages = job.stages
    by_gpu = sorted(range(len(stages)), key=lambda i: (-max(stages[i].shares), -stages[i].cpus, -stages[i].memory))
    yield by_gpu, False
    if sum(kind.count for kind in job.kinds) > 1:
        by_cpu = sorted(range(len(stages)), key=lambda i: (-stages[i].cpus, -max(stages[i].shares)))
        yield by_gpu, True
        yield by_cpu, False
        yield by_cpu, True


def can_hold(job: Job, plan: Plan) -> bool:
    if any(sum(row) > stage.most for row, stage in zip(plan, job.stages, strict=True)):
        return False
    return all(_kind_fits(job, k, tuple(row[k] for row in plan)) for k in range(len(job.kinds)))


def _kind_fits(job: Job, k: int, counts: tuple[int, ...]) -> bool:
    known = job.packed.get((k, counts))
    if known is None:
        kind = job.kinds[k]
        pairs = list(zip(counts, job.stages, strict=True))
        known = (
            sum(n * stage.cpus for n, stage in pairs) <= kind.count * kind.cpus + EPS
            and sum(n * stage.shares[k] for n, stage in pairs) <= kind.count * kind.gpus + EPS
            and sum(n * stage.memory for n, stage in pairs) <= kind.count * kind.memory * (1 + EPS)
            and any(_packs(job, k, counts, order, spread) for order, spread in _orders(job))
        )
        job.packed[k, counts] = known
    return known


def _packs(job: Job, k: int, counts: tuple[int, ...], order: list[int], spread: bool) -> bool:
    room = _Room(job.kinds[k], k)
    return all(room.place(job.stages[i], counts[i], spread) == counts[i] for i in order if counts[i])


def staffed(job: Job, wants: Sequence[float], have: Plan | None = None) -> Plan | None:
    """Workers whose speeds add up to what each stage wants, those that there are first; None if they do not fit."""
    if any(want > stage.capacity + EPS for want, stage in zip(wants, job.stages, strict=True)):
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
                if left > EPS and stage.speeds[k]:
                    n = rooms[k].place(stage, min(most, heads, math.ceil(left / stage.speeds[k] - EPS)), spread)
                    plan[i][k] += n
                    heads -= n
                    left -= n * stage.speeds[k]
            if left > EPS:
                break
        else:
            return tuple(map(tuple, plan))
    return None
