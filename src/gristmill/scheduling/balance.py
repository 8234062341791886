"""How many workers each step should have, and where.

Throughput is that of the slowest step: the plan makes the smallest of ``workers / (service time x tasks per
source task)`` as large as the nodes allow. Integer bisection on the throughput, first fit for placement,
workers that run already stay where they are if the plan has a use for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gristmill.scheduling.config import UNIT, StepSpec
from gristmill.scheduling.placement import Placement, Room

_SCALE = UNIT * UNIT
"""Throughput is counted in source tasks per this many microseconds x millionths of fan-out."""


@dataclass(frozen=True, slots=True)
class Load:
    """One step to be staffed. ``weight`` is worker time per source task: microseconds x millionths of fan-out."""

    step: int
    spec: StepSpec
    weight: int
    placed: tuple[tuple[int, Placement], ...] = ()
    """(node, placement) of the workers it has, those that are missed most first."""
    most: int = 1 << 30
    """More workers than this would have nothing to do."""
    certain: bool = True
    """The weight is measured, not guessed."""


@dataclass(frozen=True, slots=True)
class SharedLoad:
    """CPU that shared steps need per source task, in CPU millionths x weight."""

    weight_cpu: int = 0
    cpu: int = 0
    """CPUs of all nodes."""
    floor: int = 0
    """CPUs that shared steps have whatever dedicated workers take."""


@dataclass(slots=True)
class Staffing:
    """The plan: for each step the number of its workers, and where the new ones go."""

    counts: dict[int, int] = field(default_factory=dict)
    throughput: int = 0
    """Source tasks per `_SCALE`; only good for comparison."""
    complete: bool = True
    """Every step has a worker. If not, steps must take turns."""
    starts: list[tuple[int, int, Placement]] = field(default_factory=list)
    """(step, node, placement) of the workers to start."""


def throughput(loads: Sequence[Load], counts: Mapping[int, int]) -> int:
    """What these counts achieve, limited by the slowest step; 0 if a step has no worker."""
    return min((counts.get(load.step, 0) * _SCALE * UNIT // max(load.weight, 1) for load in loads), default=0)


def with_shared(rate: int, loads: Sequence[Load], counts: Mapping[int, int], shared: SharedLoad) -> int:
    """A throughput as far as the CPUs that these counts leave to shared steps allow it."""
    if not shared.weight_cpu:
        return rate
    left = shared.cpu - sum(counts.get(load.step, 0) * load.spec.cpu for load in loads)
    return min(rate, max(left, shared.floor) * _SCALE * UNIT // shared.weight_cpu)


def staff(nodes: Mapping[int, Room], loads: Sequence[Load], shared: SharedLoad) -> Staffing:
    """Plan workers for ``loads`` on nodes that are given as if empty of dedicated workers."""
    if not loads:
        return Staffing()
    least = _least(nodes, loads)
    if least is None:
        return Staffing({load.step: 0 for load in loads}, 0, complete=False)
    cpu = sum(room.cpu for room in nodes.values())
    low, high = 0, min(_most(load, nodes) * _SCALE * UNIT // max(load.weight, 1) + 1 for load in loads)
    best = least
    while low < high - 1:
        middle = (low + high) // 2
        counts = {load.step: _needed(load, middle, least[load.step]) for load in loads}
        dedicated_cpu = sum(counts[load.step] * load.spec.cpu for load in loads)
        enough_cpu = shared.weight_cpu * middle <= (cpu - dedicated_cpu) * _SCALE * UNIT
        if enough_cpu and _pack(nodes, loads, counts) is not None:
            low, best = middle, counts
        else:
            high = middle
        if high - low <= low >> 10:
            break
    packing = _pack(nodes, loads, best)
    assert packing is not None, "the best plan has been packed before"
    _fill(packing, loads, best)
    return Staffing(best, throughput(loads, best), starts=packing.starts)


def _least(nodes: Mapping[int, Room], loads: Sequence[Load]) -> dict[int, int] | None:
    """One worker a step, and of fixed numbers as much as fits, all in the same proportion; None if not even one."""

    def part(of_1024: int) -> dict[int, int]:
        return {load.step: max(1, (load.spec.workers or 1) * of_1024 // 1024) for load in loads}

    if _pack(nodes, loads, part(1024)) is not None:
        return part(1024)
    if _pack(nodes, loads, part(0)) is None:
        return None
    low, high = 0, 1024
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _pack(nodes, loads, part(middle)) is None else (middle, high)
    return part(low)


def _needed(load: Load, target: int, least: int) -> int:
    if load.spec.workers is not None:
        return least
    return max(least, min(load.most, -(-target * load.weight // (_SCALE * UNIT))))


def _most(load: Load, nodes: Mapping[int, Room]) -> int:
    """A bound on the workers of a step that could ever be placed."""
    if load.spec.workers is not None:
        return load.spec.workers
    bound = 0
    for room in nodes.values():
        limits = []
        if load.spec.cpu:
            limits.append(room.cpu // load.spec.cpu)
        if load.spec.uses_gpu:
            share = load.spec.gpu or max(1, load.spec.gpu_memory * UNIT // max([*room.gpu_memory, 1]))
            limits.append(len(room.gpu_memory) * UNIT // share)
        bound += min(limits, default=1 << 10)
    return max(1, min(bound, load.most))


@dataclass(slots=True)
class _Packing:
    """What is left of the nodes, and where the workers that do not run yet go."""

    rooms: dict[int, Room]
    free: dict[int, Room]
    """What is left if nobody leaves: new workers go there first."""
    starts: list[tuple[int, int, Placement]] = field(default_factory=list)

    def keep(self, load: Load, n: int) -> bool:
        """Let the n-th worker that a step has stay where it is, if there is still room."""
        node, placement = load.placed[n]
        fits = node in self.rooms and self.rooms[node].fits(placement)
        if fits:
            self.rooms[node].take(placement)
        return fits

    def place(self, load: Load) -> bool:
        """Find a place for a new worker of a step."""
        for rooms in (self.free, self.rooms):
            for node, room in rooms.items():
                placement = room.find(load.spec)
                if placement is not None and self.rooms[node].fits(placement):
                    self.rooms[node].take(placement)
                    if node in self.free:
                        self.free[node].take(placement)
                    self.starts.append((load.step, node, placement))
                    return True
        return False


def _pack(nodes: Mapping[int, Room], loads: Sequence[Load], counts: Mapping[int, int]) -> _Packing | None:
    """Place so many workers, or None if they do not fit; where nobody has to leave, if that is possible."""
    leaving = any(counts[load.step] < len(load.placed) for load in loads)
    packing = _pack_with(nodes, nodes, loads, counts) if leaving else None
    return packing or _pack_with(nodes, {}, loads, counts)


def _pack_with(
    nodes: Mapping[int, Room], free: Mapping[int, Room], loads: Sequence[Load], counts: Mapping[int, int]
) -> _Packing | None:
    """The largest go first, by GPU, then by CPU."""
    packing = _Packing({i: room.copy() for i, room in nodes.items()}, {i: room.copy() for i, room in free.items()})
    missing: list[tuple[Load, int]] = []
    for load in loads:
        n = counts[load.step]
        kept = sum(packing.keep(load, i) for i in range(min(n, len(load.placed))))
        for node, placement in load.placed if free else ():
            packing.free[node].take(placement)
        missing.append((load, n - kept))
    missing.sort(key=lambda m: (-m[0].spec.gpu, -m[0].spec.gpu_memory, -m[0].spec.cpu, m[0].step))
    for load, n in missing:
        for _ in range(n):
            if not packing.place(load):
                return None
    return packing


def _fill(packing: _Packing, loads: Sequence[Load], counts: dict[int, int]) -> None:
    """Use what is left for steps whose speed is still a guess; there is nothing to lose. Nobody is moved for it."""
    unsure = [load for load in loads if not load.certain and load.spec.workers is None]
    while unsure:
        load = min(unsure, key=lambda x: (counts[x.step] * _SCALE * UNIT // max(x.weight, 1), x.step))
        n = counts[load.step]
        if n < load.most and (packing.keep(load, n) if n < len(load.placed) else packing.place(load)):
            counts[load.step] += 1
        else:
            unsure.remove(load)
