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
    """(node, placement) of the workers it has."""
    most: int = 1 << 30
    """More workers than this would have nothing to do."""
    certain: bool = True
    """The weight is measured, not guessed."""


@dataclass(frozen=True, slots=True)
class SharedLoad:
    """CPU that shared steps need per source task, in CPU millionths x weight."""

    weight_cpu: int = 0


@dataclass(slots=True)
class Staffing:
    """The plan: for each step the number of its workers, and where the new ones go."""

    counts: dict[int, int] = field(default_factory=dict)
    throughput: int = 0
    """Source tasks per `_SCALE`; only good for comparison."""
    complete: bool = True
    """Every step has a worker. If not, steps must take turns."""


def throughput(loads: Sequence[Load], counts: Mapping[int, int]) -> int:
    """What these counts achieve, limited by the slowest step; 0 if a step has no worker."""
    return min((counts.get(load.step, 0) * _SCALE * UNIT // max(load.weight, 1) for load in loads), default=0)


def staff(nodes: Mapping[int, Room], loads: Sequence[Load], shared: SharedLoad) -> Staffing:
    """Plan workers for ``loads`` on nodes that are given as if empty of dedicated workers."""
    if not loads:
        return Staffing()
    least = {load.step: load.spec.workers or 1 for load in loads}
    if _pack(nodes, loads, least) is None:
        least = dict.fromkeys(least, 1)
        if _pack(nodes, loads, least) is None:
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
    _fill(nodes, loads, best)
    return Staffing(best, throughput(loads, best))


def _needed(load: Load, target: int, least: int) -> int:
    if load.spec.workers is not None:
        return max(least, min(load.spec.workers, load.most))
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


def _pack(
    nodes: Mapping[int, Room], loads: Sequence[Load], counts: Mapping[int, int]
) -> dict[int, Room] | None:
    """What is left of the nodes when so many workers are placed, or None if they do not fit."""
    rooms = {i: room.copy() for i, room in nodes.items()}
    missing: list[tuple[Load, int]] = []
    for load in loads:
        keep = load.placed[: counts[load.step]]
        for node, placement in keep:
            if node in rooms:
                rooms[node].take(placement)
        missing.append((load, counts[load.step] - len(keep)))
    missing.sort(key=lambda m: (-m[0].spec.gpu, -m[0].spec.gpu_memory, -m[0].spec.cpu, m[0].step))
    for load, n in missing:
        for _ in range(n):
            if not _place(rooms, load.spec):
                return None
    return rooms


def _place(rooms: Mapping[int, Room], spec: StepSpec) -> bool:
    for room in rooms.values():
        placement = room.find(spec)
        if placement is not None:
            room.take(placement)
            return True
    return False


def _fill(nodes: Mapping[int, Room], loads: Sequence[Load], counts: dict[int, int]) -> None:
    """Use what is left for steps whose speed is still a guess; there is nothing to lose."""
    unsure = [load for load in loads if not load.certain and load.spec.workers is None]
    rooms = _pack(nodes, loads, counts) if unsure else None
    while rooms is not None and unsure:
        load = min(unsure, key=lambda x: (counts[x.step] * _SCALE * UNIT // max(x.weight, 1), x.step))
        if counts[load.step] < load.most and _place(rooms, load.spec):
            counts[load.step] += 1
        else:
            unsure.remove(load)
