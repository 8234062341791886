"""The best steady throughput of a load: equal nodes are taken together, and workers are packed on them by first fit."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

from gristmill.scheduling.simulator.loads import GB, Load, NodeModel, StageModel

EPS = 1e-9
_MOST = 100_000
"""Workers of a stage that needs nothing."""
_NO_PLACE = 1e9
"""Share of a GPU that none has."""
Staffing = tuple[tuple[int, ...], ...]
"""Workers by stage and kind of node."""
_Node = tuple[float, float, tuple[float, ...]]
"""The free capacity of a node: CPUs, bytes, and the share of each GPU."""


@dataclass(frozen=True, slots=True)
class NodeKind:
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

    def mean_at(self, done: float) -> float:
        return next(mean for first, mean in reversed(self.paces) if first <= done)


@dataclass(eq=False)
class Packing:
    """A load with equal nodes taken together; stages that get no tasks are omitted."""

    kinds: tuple[NodeKind, ...]
    stages: tuple[Stage, ...]

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, load: Load) -> Self:
        models = list(dict.fromkeys(load.nodes))
        kinds = tuple(NodeKind(load.nodes.count(m), m.cpus, m.memory, m.gpus) for m in models)
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
        return cls(kinds, tuple(stages))


def _share(model: StageModel, node: NodeModel) -> float:
    """GPUs of a worker on a node, with its memory as a share of one."""
    by_memory = model.gpu_memory_gb / max(node.gpu_memory_gb, EPS)
    if model.gpus > 1:
        return model.gpus
    return max(model.gpus, by_memory) if by_memory <= 1 else _NO_PLACE


def _empty(kind: NodeKind) -> _Node:
    return kind.cpus, kind.memory, (1.0,) * kind.gpus


def _most_on(node: _Node, stage: Stage, k: int) -> int:
    """Return how many more workers fit on a node."""
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
    """Return a node with ``n`` more workers; shares go to the fullest GPU with enough left."""
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


class KindCapacity:
    """The capacity of the nodes of one kind; nodes in the same state are one entry."""

    def __init__(self, kind: NodeKind, k: int) -> None:
        self.k = k
        self.nodes: list[tuple[int, _Node]] = [(kind.count, _empty(kind))]

    def place(self, stage: Stage, n: int, spread: bool) -> int:
        """Place up to ``n`` workers, on few nodes or spread over all, and return how many fit."""
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


def orders(packing: Packing) -> Iterator[tuple[list[int], bool]]:
    """In which orders stages are placed, and whether their workers are spread."""
    stages = packing.stages
    by_gpu = sorted(range(len(stages)), key=lambda i: (-max(stages[i].shares), -stages[i].cpus, -stages[i].memory))
    yield by_gpu, False
    if sum(kind.count for kind in packing.kinds) > 1:
        by_cpu = sorted(range(len(stages)), key=lambda i: (-stages[i].cpus, -max(stages[i].shares)))
        yield by_gpu, True
        yield by_cpu, False
        yield by_cpu, True


def staffed(packing: Packing, wants: Sequence[float], have: Staffing | None = None) -> Staffing | None:
    """Return workers whose speeds add up to what each stage wants, existing ones first; None if they do not fit."""
    if any(want > stage.capacity + EPS for want, stage in zip(wants, packing.stages, strict=True)):
        return None
    for order, spread in orders(packing):
        kinds_left = [KindCapacity(kind, k) for k, kind in enumerate(packing.kinds)]
        plan = [[0] * len(kinds_left) for _ in packing.stages]
        for i in order:
            stage, left, heads = packing.stages[i], wants[i], packing.stages[i].most
            # A stage without a GPU leaves the nodes that have some to the others while it can.
            kinds = sorted(
                range(len(kinds_left)),
                key=lambda k: (stage.shares[k] == 0 and packing.kinds[k].gpus > 0, -stage.speeds[k]),
            )
            tries = [(k, have[i][k]) for k in kinds if have and have[i][k]] + [(k, heads) for k in kinds]
            for k, most in tries:
                if left > EPS and stage.speeds[k]:
                    n = kinds_left[k].place(stage, min(most, heads, math.ceil(left / stage.speeds[k] - EPS)), spread)
                    plan[i][k] += n
                    heads -= n
                    left -= n * stage.speeds[k]
            if left > EPS:
                break
        else:
            return tuple(map(tuple, plan))
    return None


def throughput(packing: Packing, needs: Sequence[float]) -> float:
    """The best throughput if each unit takes a stage so many seconds at speed 1."""

    def holds(rate: float) -> bool:
        return staffed(packing, [rate * need * (1 - EPS) for need in needs]) is not None

    high = min(stage.capacity / need for stage, need in zip(packing.stages, needs, strict=True))
    if not high or holds(high):
        return high
    if len({speed for stage in packing.stages for speed in stage.speeds if speed}) == 1:
        # All workers are alike, so the optimum is that of some stage with a whole number of workers.
        speed = max(packing.stages[0].speeds)
        rates = {
            n * speed / need
            for s, need in zip(packing.stages, needs, strict=True)
            for n in range(1, round(s.capacity / speed) + 1)
        }
        ordered = sorted(rate for rate in rates if rate <= high)
        at = bisect_left(ordered, True, key=lambda rate: not holds(rate))
        return ordered[at - 1] if at else 0.0
    period = smallest(lambda seconds: holds(1 / seconds), 1 / high, 1e6 / high, 1e-7)
    return 1 / period if holds(1 / period) else 0.0


def smallest(holds: Callable[[float], bool], low: float, high: float, precision: float) -> float:
    """The smallest number from which on something holds; it is taken to hold at ``high``."""
    while high - low > precision * high:
        middle = math.sqrt(low * high) if low > 0 and high > 4 * low else (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def optima(load: Load) -> list[tuple[float, float]]:
    """Inputs and the best steady throughput in inputs/s of each phase; a change of a stage's mean starts a new one.

    Exact where nodes are equal and the packing is easy (one node, or GPU shares that divide one another). Workers are
    packed by first fit in a few orders, so with nodes of many kinds or awkward shares the figure may be a little low.
    """
    packing = Packing.of(load)
    per_input = [stage.tasks / load.inputs for stage in packing.stages]
    cuts = {first / x for stage, x in zip(packing.stages, per_input, strict=True) for first, _ in stage.paces}
    starts = sorted(cut for cut in cuts | {0.0} if cut < load.inputs)
    phases = []
    for start, end in zip(starts, [*starts[1:], float(load.inputs)], strict=True):
        middle = (start + end) / 2
        needs = [x * stage.mean_at(middle * x) for stage, x in zip(packing.stages, per_input, strict=True)]
        phases.append((end - start, throughput(packing, needs)))
    return phases


def optimum(load: Load) -> float:
    """The best steady throughput in inputs/s with whole workers; over all phases if stages change their means."""
    phases = optima(load)
    return phases[0][1] if len(phases) == 1 else load.inputs / ideal_s(load)


def ideal_s(load: Load) -> float:
    """The makespan at the best steady throughput of each phase; infinite if not every stage finds a place."""
    return sum(inputs / rate if rate else math.inf for inputs, rate in optima(load))
