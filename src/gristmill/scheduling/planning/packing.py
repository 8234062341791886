"""Workers on groups of equal nodes: how many fit, who would have to leave, what they get done by a given moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from gristmill.scheduling.placement import Capacity, Placement, gpu_share
from gristmill.scheduling.settings import UNIT, StepSpec

FOREVER = 1 << 60
_WITHOUT_END = 1 << 12
"""Workers on one node of a step that needs nothing."""
_PAIRS = 12
"""Up to so many kinds of workers on a node, all pairs of them are tried as those who make room."""


Hands = tuple[tuple[int, int], ...]
"""Seats and how many workers each has, those first who would sooner go."""


class Seat(NamedTuple):
    """What makes workers of one node interchangeable."""

    load: int
    placement: Placement
    delay_us: int


class Group:
    """Nodes that are equal in all that matters here. Never changed: what is placed makes a new group."""

    __slots__ = ("_goes", "closed", "fit", "free_gpu", "hands", "kind", "nodes", "opened", "room", "uses")

    def __init__(
        self,
        kind: int,
        nodes: Sequence[int],
        room: Capacity,
        hands: Hands,
        uses: int,
        opened: bool = False,
        closed: int = 0,
    ) -> None:
        self.kind = kind
        self.nodes = nodes
        self.room = room
        """What is left of each when those who leave have left."""
        self.hands = hands
        """Those who stay."""
        self.uses = uses
        """Steps that could have a worker here if the node were empty."""
        self.opened = opened
        """Somebody leaves; who is placed here has to wait for it."""
        self.closed = closed
        """A bit for each load that cannot start workers here."""
        self.free_gpu = sum(room.gpu_free)
        self.fit: dict[int, int] = {}
        """How many workers of a step fit on each of the nodes, as far as it is known."""
        self._goes: dict[tuple[int, int], tuple[int, ...]] = {}

    def fits(self, load: int, spec: StepSpec) -> int:
        """How many workers of a step fit on each of the nodes."""
        n = self.fit.get(load)
        if n is None:
            n = self.fit[load] = 0 if self.closed >> load & 1 else fitting(self.room, spec)
        return n

    def victims(self, load: int, spec: StepSpec, may_go: int, seats: Sequence[Seat]) -> tuple[int, ...]:
        """The fewest seats whose workers make room for one of ``spec``. ``may_go`` has a bit for each load."""
        if self.closed >> load & 1:
            return ()
        key = (load, may_go)
        found = self._goes.get(key)
        if found is None:
            candidates = [(code, seats[code], n) for code, n in self.hands if may_go >> seats[code].load & 1]
            found = self._goes[key] = victims(self.room, spec, candidates) if candidates else ()
        return found

    def part(self, first: int, last: int) -> Group:
        """Some of the nodes, as they are."""
        part = Group(self.kind, self.nodes[first:last], self.room, self.hands, self.uses, self.opened, self.closed)
        part.fit, part._goes = self.fit, self._goes
        return part


def fitting(room: Capacity, spec: StepSpec) -> int:
    """How many workers of a step fit in a room."""
    if spec.cpu > room.cpu or spec.memory > room.memory:
        return 0
    limit = _WITHOUT_END
    if spec.cpu:
        limit = min(limit, room.cpu // spec.cpu)
    if spec.memory:
        limit = min(limit, room.memory // spec.memory)
    if limit <= 0 or not spec.uses_gpu:
        return max(0, limit)
    if spec.gpu > UNIT:
        return min(limit, sum(free == UNIT for free in room.gpu_free) // -(-spec.gpu // UNIT))
    return min(
        limit,
        sum(
            max(0, free) // gpu_share(spec, memory) for free, memory in zip(room.gpu_free, room.gpu_memory, strict=True)
        ),
    )


def put(room: Capacity, spec: StepSpec, n: int) -> list[Placement]:
    """Take room for so many workers, which must fit."""
    if not spec.uses_gpu:
        room.cpu -= n * spec.cpu
        room.memory -= n * spec.memory
        return [Placement(spec.cpu, spec.memory)] * n
    placements = []
    for _ in range(n):
        placement = room.find(spec)
        assert placement is not None, "it has been seen that they fit"
        room.take(placement)
        placements.append(placement)
    return placements


def less(hands: Hands, code: int) -> Hands:
    """These, without one worker of a seat."""
    return tuple((c, n - (c == code)) for c, n in hands if c != code or n > 1)


def victims(room: Capacity, spec: StepSpec, candidates: Sequence[tuple[int, Seat, int]]) -> tuple[int, ...]:
    """The fewest workers whose leaving makes room for a worker of ``spec`` on their node; none if impossible.

    Candidates are (seat's number, seat, workers). What is short decides who goes, and among equals the first.
    """
    bare = StepSpec(spec.name, cpu=0, gpu=spec.gpu, gpu_memory=spec.gpu_memory)
    needs_gpu = room.find(bare) is None
    cpu, memory = spec.cpu - room.cpu, spec.memory - room.memory

    def help_(*going: Placement) -> bool:
        if sum(p.cpu for p in going) < cpu or sum(p.memory for p in going) < memory:
            return False
        if not needs_gpu:
            return True
        if not any(p.gpus for p in going):
            return False
        trial = room.copy()
        for p in going:
            trial.give(p)
        return trial.find(spec) is not None

    holders = [x for x in candidates if x[1].placement.gpus] if needs_gpu else candidates
    if (
        not holders
        or sum(n * seat.placement.cpu for _, seat, n in candidates) < cpu
        or sum(n * seat.placement.memory for _, seat, n in candidates) < memory
    ):
        return ()
    for code, seat, _ in holders:
        if help_(seat.placement):
            return (code,)
    if len(candidates) <= _PAIRS:
        for code, seat, n in holders:
            if n > 1 and help_(seat.placement, seat.placement):
                return (code, code)
        for (one, a, _), (other, b, _) in combinations(candidates, 2):
            if help_(a.placement, b.placement):
                return (one, other)
    return _many_victims(room, spec, bare, [(code, seat) for code, seat, n in candidates for _ in range(n)])


def _many_victims(room: Capacity, spec: StepSpec, bare: StepSpec, ordered: list[tuple[int, Seat]]) -> tuple[int, ...]:
    """Empty one GPU after the other, the one that takes the fewest departures first, then free CPUs and memory."""
    left = room.copy()
    rest = list(ordered)
    gone: list[int] = []

    def go(x: tuple[int, Seat]) -> None:
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


def _fewest_on_a_gpu(room: Capacity, spec: StepSpec, candidates: list[tuple[int, Seat]]) -> list[tuple[int, Seat]]:
    best: list[tuple[int, Seat]] = []
    holders = [x for x in candidates if x[1].placement.gpus]
    for gpu, free in enumerate(room.gpu_free):
        share = UNIT if spec.gpu > UNIT else gpu_share(spec, room.gpu_memory[gpu])
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
class Crew:
    """Workers of one step: what they do until a moment is linear in it, from each one's start on."""

    tasks: int
    workers: dict[tuple[int, int], int] = field(default_factory=dict)
    """How many there are of each (delay, service time)."""

    def add(self, delay: int, service: int, n: int = 1) -> None:
        self.workers[delay, service] = self.workers.get((delay, service), 0) + n

    def done(self, until: int) -> int:
        """Tasks that are done by a moment."""
        return sum(max(0, until - delay) * UNIT // service * n for (delay, service), n in self.workers.items())

    def finish(self) -> int:
        """When the tasks that remain are done."""
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
