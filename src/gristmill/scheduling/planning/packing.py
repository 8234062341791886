"""Workers on groups of equal nodes: how many fit, which would have to leave, and what they finish by a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

from gristmill.scheduling.placement import Capacity, Placement, gpu_share
from gristmill.scheduling.settings import UNIT, StepSpec

FOREVER = 1 << 60
_WITHOUT_END = 1 << 12
"""Workers on one node of a step that needs nothing."""
_PAIRS = 12
"""With up to this many kinds of workers on a node, all pairs of them are tried as the workers that leave."""


Staff = tuple[tuple[int, int], ...]
"""Slots and how many workers each has, in the order in which they would leave."""


class PlanSlot(NamedTuple):
    """A kind of workers of one node that are interchangeable."""

    demand: int
    placement: Placement
    delay_us: int


@dataclass(eq=False, slots=True)
class Group:
    """Nodes that are equal in all that matters here. Never changed: placing a worker makes a new group."""

    kind: int
    nodes: Sequence[int]
    capacity: Capacity
    """The free capacity of each node once the workers that stop are gone."""
    staff: Staff
    """The workers that stay."""
    uses: int
    """Steps that could have a worker here if the node were empty."""
    opened: bool = False
    """A worker leaves, and workers placed here wait for it."""
    closed: int = 0
    """A bit for each demand that cannot start workers here."""
    fit: dict[int, int] = field(default_factory=dict)
    """How many workers of a step fit on each of the nodes, as far as it is known."""
    known_leavers: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    free_gpu: int = field(init=False)

    def __post_init__(self) -> None:
        self.free_gpu = sum(self.capacity.gpu_free)

    def fits(self, demand: int, spec: StepSpec) -> int:
        """Return how many workers of a step fit on each of the nodes."""
        n = self.fit.get(demand)
        if n is None:
            n = self.fit[demand] = 0 if self.closed >> demand & 1 else fitting(self.capacity, spec)
        return n

    def leavers(self, demand: int, spec: StepSpec, can_leave: int, slots: Sequence[PlanSlot]) -> tuple[int, ...]:
        """Return the fewest slots whose workers free capacity for ``spec``; ``can_leave`` has a bit per demand."""
        if self.closed >> demand & 1:
            return ()
        key = (demand, can_leave)
        found = self.known_leavers.get(key)
        if found is None:
            candidates = [
                (slot_id, slots[slot_id], n) for slot_id, n in self.staff if can_leave >> slots[slot_id].demand & 1
            ]
            found = self.known_leavers[key] = leavers(self.capacity, spec, candidates) if candidates else ()
        return found

    def part(self, first: int, last: int) -> Group:
        """Return some of the nodes, as they are."""
        return replace(self, nodes=self.nodes[first:last])


def fitting(capacity: Capacity, spec: StepSpec) -> int:
    """Return how many workers of a step fit in a capacity."""
    if spec.cpu > capacity.cpu or spec.memory > capacity.memory:
        return 0
    limit = _WITHOUT_END
    if spec.cpu:
        limit = min(limit, capacity.cpu // spec.cpu)
    if spec.memory:
        limit = min(limit, capacity.memory // spec.memory)
    if limit <= 0 or not spec.uses_gpu:
        return max(0, limit)
    if spec.gpu > UNIT:
        return min(limit, sum(free == UNIT for free in capacity.gpu_free) // -(-spec.gpu // UNIT))
    return min(
        limit,
        sum(
            max(0, free) // gpu_share(spec, memory)
            for free, memory in zip(capacity.gpu_free, capacity.gpu_memory, strict=True)
        ),
    )


def put(capacity: Capacity, spec: StepSpec, n: int) -> list[Placement]:
    """Take the capacity of ``n`` workers, which must fit, and return their placements."""
    if not spec.uses_gpu:
        capacity.cpu -= n * spec.cpu
        capacity.memory -= n * spec.memory
        return [Placement(spec.cpu, spec.memory)] * n
    placements = []
    for _ in range(n):
        placement = capacity.find(spec)
        assert placement is not None, "the workers do not fit"
        capacity.take(placement)
        placements.append(placement)
    return placements


def less(staff: Staff, slot_id: int) -> Staff:
    """Return the staff without one worker of a slot."""
    return tuple((c, n - (c == slot_id)) for c, n in staff if c != slot_id or n > 1)


def leavers(capacity: Capacity, spec: StepSpec, candidates: Sequence[tuple[int, PlanSlot, int]]) -> tuple[int, ...]:
    """Return the fewest workers that must leave for a worker of ``spec`` to fit on their node; none if impossible.

    Candidates are (number of the slot, slot, workers). Workers that hold what is short leave, of equals the first.
    """
    bare = StepSpec(spec.name, cpu=0, gpu=spec.gpu, gpu_memory=spec.gpu_memory)
    needs_gpu = capacity.find(bare) is None
    cpu, memory = spec.cpu - capacity.cpu, spec.memory - capacity.memory

    def suffices(*going: Placement) -> bool:
        if sum(p.cpu for p in going) < cpu or sum(p.memory for p in going) < memory:
            return False
        if not needs_gpu:
            return True
        if not any(p.gpus for p in going):
            return False
        trial = capacity.copy()
        for p in going:
            trial.give(p)
        return trial.find(spec) is not None

    holders = [x for x in candidates if x[1].placement.gpus] if needs_gpu else candidates
    if (
        not holders
        or sum(n * slot.placement.cpu for _, slot, n in candidates) < cpu
        or sum(n * slot.placement.memory for _, slot, n in candidates) < memory
    ):
        return ()
    for slot_id, slot, _ in holders:
        if suffices(slot.placement):
            return (slot_id,)
    if len(candidates) <= _PAIRS:
        for slot_id, slot, n in holders:
            if n > 1 and suffices(slot.placement, slot.placement):
                return (slot_id, slot_id)
        for (one, a, _), (other, b, _) in combinations(candidates, 2):
            if suffices(a.placement, b.placement):
                return (one, other)
    return _many_leavers(capacity, spec, bare, [(slot_id, slot) for slot_id, slot, n in candidates for _ in range(n)])


def _many_leavers(
    capacity: Capacity, spec: StepSpec, bare: StepSpec, ordered: list[tuple[int, PlanSlot]]
) -> tuple[int, ...]:
    """Empty one GPU after the other, first the one where the fewest workers must leave, then free CPUs and memory."""
    left = capacity.copy()
    rest = list(ordered)
    gone: list[int] = []

    def go(x: tuple[int, PlanSlot]) -> None:
        rest.remove(x)
        gone.append(x[0])
        left.give(x[1].placement)

    while left.find(bare) is None:
        choice = _fewest_on_a_gpu(left, bare, rest)
        if not choice:
            return ()
        for x in choice:
            go(x)
    rest.sort(key=lambda x: (bool(x[1].placement.gpus), -x[1].placement.cpu))
    while left.find(spec) is None:
        cpu, memory = spec.cpu > left.cpu, spec.memory > left.memory
        short = [x for x in rest if (cpu and x[1].placement.cpu) or (memory and x[1].placement.memory)]
        if not short:
            return ()
        go(short[0])
    return tuple(gone)


def _fewest_on_a_gpu(
    capacity: Capacity, spec: StepSpec, candidates: list[tuple[int, PlanSlot]]
) -> list[tuple[int, PlanSlot]]:
    best: list[tuple[int, PlanSlot]] = []
    holders = [x for x in candidates if x[1].placement.gpus]
    for gpu, free in enumerate(capacity.gpu_free):
        share = UNIT if spec.gpu > UNIT else gpu_share(spec, capacity.gpu_memory[gpu])
        chosen = []
        for x in sorted((x for x in holders if gpu in x[1].placement.gpus), key=lambda x: -x[1].placement.gpu_share):
            if free >= share:
                break
            chosen.append(x)
            free += x[1].placement.gpu_share
        if chosen and free >= share and (not best or len(chosen) < len(best)):
            best = chosen
    return best


@dataclass(slots=True)
class WorkerPool:
    """Workers of one step. From its start on, what a worker has finished is linear in time."""

    tasks: int
    workers: dict[tuple[int, int], int] = field(default_factory=dict)
    """The number of workers by (delay, service time)."""

    def add(self, delay: int, service: int, n: int = 1) -> None:
        self.workers[delay, service] = self.workers.get((delay, service), 0) + n

    def done(self, until: int) -> int:
        """Return the tasks that are finished by a moment."""
        return sum(max(0, until - delay) * UNIT // service * n for (delay, service), n in self.workers.items())

    def finish(self) -> int:
        """Return when the remaining tasks are finished."""
        if self.tasks <= 0:
            return 0
        left = self.tasks << 40
        speed = at = 0
        for (delay, service), n in sorted(self.workers.items()):
            if n <= 0:
                continue
            if speed and at + -(-left // speed) <= delay:
                break
            left -= speed * (delay - at)
            at = delay
            speed += (n * UNIT << 40) // service
        return min(FOREVER, at + max(0, -(-left // speed))) if speed else FOREVER
