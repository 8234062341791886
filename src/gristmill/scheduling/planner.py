"""How many workers each step should have, and where, so that the run ends soonest.

A run ends when its last step has done what remains for it. For a moment T each step needs so many workers that
together they do its remaining tasks until then: those that work already do from now on, new ones only after their
setup. The plan is the earliest T for which all these workers fit the nodes, found by bisection; whoever works
already stays where he is unless T gets noticeably earlier if he goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gristmill.scheduling.config import UNIT, StepSpec
from gristmill.scheduling.placement import Placement, Room

FOREVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Hand:
    """A worker that a step has."""

    worker: int
    node: int
    placement: Placement
    delay_us: int = 0
    """Until it works: what is left of its setup."""


@dataclass(frozen=True, slots=True)
class Load:
    """One step to be staffed."""

    step: int
    spec: StepSpec
    tasks: int
    """Tasks that remain for it, in millionths."""
    service_us: Mapping[int, int]
    """Worker time per task, by kind of node."""
    setup_us: int = 0
    """What passes before a new worker works."""
    hands: tuple[Hand, ...] = ()
    """The workers it has, those that are missed most first."""
    most: int = 1 << 30
    """More workers than this would have nothing to do."""
    certain: bool = True
    """The service time is measured, or known from an earlier run. If not it is a guess: good enough to fill free room,
    no reason to move anybody."""
    blocked: bool = False
    """Nothing can come to it for a while, and workers that are let go meanwhile can be had back at once."""


@dataclass(frozen=True, slots=True)
class Site:
    """A node as if it were empty."""

    id: int
    kind: int
    room: Room


@dataclass(frozen=True, slots=True)
class SharedLoad:
    """What CPU steps on shared workers need: CPU time in millionths of a CPU x microseconds."""

    work: int = 0
    floor: int = 0
    """CPUs that shared steps have whatever dedicated workers take."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything that a plan depends on."""

    sites: tuple[Site, ...]
    loads: tuple[Load, ...]
    shared: SharedLoad = SharedLoad()
    leave_us: int = 0
    """What passes until a worker that is asked to leave has left."""
    margin: int = 30_000
    """How much earlier the run must end if workers are to leave for it, in millionths."""
    memory_floor: int = 0
    """Memory of each node that has been set aside for shared steps."""


@dataclass(slots=True)
class Plan:
    """What to do: workers to start, and workers to let go so that others can be started when they have left."""

    counts: dict[int, int] = field(default_factory=dict)
    """Workers of each step once all is done."""
    starts: list[tuple[int, int, Placement]] = field(default_factory=list)
    """(step, node, placement) of workers that have room now."""
    leaves: list[int] = field(default_factory=list)
    """Workers to let go."""
    finish_us: int = 0
    """When the run would end by this plan, from now."""
    stay_us: int = 0
    """When it would end if nobody left."""
    finishes: dict[int, int] = field(default_factory=dict)
    """When each step would end."""
    complete: bool = True
    """Every step has a worker. If not, steps must take turns."""


@dataclass(slots=True)
class _Crew:
    """Workers of one step: what they do until a moment is linear in it, from each one's start on."""

    load: Load
    rates: list[tuple[int, int]] = field(default_factory=list)
    """(delay, service time) of each worker."""

    def finish(self) -> int:
        """When the tasks that remain are done."""
        if self.load.tasks <= 0:
            return 0
        if not self.rates:
            return FOREVER
        done = 0
        speed = 0.0
        rates = sorted(self.rates)
        at = rates[0][0]
        for i, (delay, service) in enumerate(rates):
            done += int(speed * (delay - at))
            at = delay
            speed += UNIT / service
            left = self.load.tasks - done
            end = at + int(left / speed)
            if i + 1 == len(rates) or end <= rates[i + 1][0]:
                return end
        return FOREVER


def finish_us(load: Load, kinds: Mapping[int, int]) -> int:
    """When a step would end with the workers it has. ``kinds`` names the kind of each node."""
    crew = _Crew(load, [(h.delay_us, load.service_us[kinds[h.node]]) for h in load.hands if h.node in kinds])
    return crew.finish()


def solve(problem: Problem) -> Plan:
    """The plan for a problem."""
    loads = problem.loads
    if not loads:
        return Plan()
    if not _all_fit(problem):
        return Plan({load.step: 0 for load in loads}, complete=False)
    stay = _Draft(problem)
    stay.fill()
    best = stay
    low, high = 0, stay.finish()
    aim = high - high // UNIT * problem.margin - high % UNIT * problem.margin // UNIT
    if all(stay.crews[load.step].rates for load in loads):
        high = aim
    tried = _Draft.by(problem, high) if high < FOREVER else _Draft.by_counts(problem)
    if tried is not None:
        best = tried
        if high < FOREVER:
            while high - low > max(high >> 8, 1000):
                middle = (low + high) // 2
                tried = _Draft.by(problem, middle)
                if tried is None:
                    low = middle
                else:
                    high, best = middle, tried
        if not best.leaves:
            best = stay
    best.lend(best.finish())
    return best.plan(stay)


def _all_fit(problem: Problem) -> bool:
    """Whether each step can have one worker at the same time."""
    rooms = {site.id: site.room.copy() for site in problem.sites}
    for load in sorted(problem.loads, key=_size):
        for room in rooms.values():
            placement = room.find(load.spec)
            if placement is not None:
                room.take(placement)
                break
        else:
            return False
    return True


def _size(load: Load) -> tuple[int, int, int, int]:
    """The largest go first, by GPU, then by CPU."""
    return (-load.spec.gpu, -load.spec.gpu_memory, -load.spec.cpu, load.step)


class _Draft:
    """A plan in the making."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.kinds = {site.id: site.kind for site in problem.sites}
        self.rooms = {site.id: site.room.copy() for site in problem.sites}
        """What is left if those who leave have left."""
        self.free = self.rooms
        self.crews: dict[int, _Crew] = {}
        self.kept: dict[int, list[Hand]] = {}
        self.starts: list[tuple[int, int, Placement, bool]] = []
        self.leaves: list[Hand] = []
        for load in problem.loads:
            self.kept[load.step] = [h for h in load.hands if h.node in self.kinds]
            rates = [(h.delay_us, load.service_us[self.kinds[h.node]]) for h in self.kept[load.step]]
            self.crews[load.step] = _Crew(load, rates)
            for hand in self.kept[load.step]:
                self.rooms[hand.node].take(hand.placement)
        self.cpu_left = sum(room.cpu for room in self.rooms.values())
        self.unsure_gpus = any(x.spec.uses_gpu and not x.certain for x in problem.loads)
        """GPUs that are to spare go to steps of which nothing is known, not to those that want a CPU."""
        self.previous = {b.step: a.step for a, b in pairwise(problem.loads)}

    def finish(self) -> int:
        """When all is done, as far as is known."""
        ends = [crew.finish() for crew in self.crews.values() if crew.load.certain or not crew.rates]
        return max([*ends, self.shared_finish()])

    def shared_finish(self) -> int:
        shared = self.problem.shared
        return shared.work // max(self.cpu_left, shared.floor, 1) if shared.work else 0

    def fill(self) -> None:
        """Give free room to the step that ends last, again and again; then to those before it, which can run ahead."""
        for certain in (True, False):
            open_steps = {x.step: x for x in self.problem.loads if x.certain is certain}
            while open_steps:
                ends = {i: self.crews[i].finish() for i in open_steps}
                worst = max(open_steps, key=lambda i: (ends[i], i))
                load, end = open_steps[worst], ends[worst]
                if self._wants_more(load, end) and self._spares_shared(load, end) and self._place_free(load):
                    continue
                for i in list(open_steps):
                    # Those behind it cannot end before it does.
                    if i == worst or (i > worst and ends[i] < FOREVER):
                        del open_steps[i]

    def _wants_more(self, load: Load, end: int) -> bool:
        n = len(self.crews[load.step].rates)
        if n >= load.most or (load.spec.workers is not None and n >= load.spec.workers):
            return False
        if not (load.certain or load.spec.uses_gpu) and n >= self._before(load):
            return False
        return n == 0 or load.setup_us + min(load.service_us.values()) < end

    def _before(self, load: Load) -> int:
        """Workers of the step before this one: more could not be kept busy, as far as one can guess."""
        previous = self.previous.get(load.step)
        if previous is None or not self.crews[previous].load.certain:
            return FOREVER
        return max(1, len(self.crews[previous].rates))

    def _spares_shared(self, load: Load, end: int) -> bool:
        """Shared steps must not become slower than the step that would grow."""
        shared = self.problem.shared
        if not shared.work or not self.crews[load.step].rates:
            return True
        return shared.work // max(self.cpu_left - load.spec.cpu, shared.floor, 1) <= end

    def _place_free(self, load: Load) -> bool:
        for node, room in self.rooms.items():
            placement = room.find(load.spec)
            if placement is not None:
                self._start(load, node, placement, 0)
                return True
        return False

    def _start(self, load: Load, node: int, placement: Placement, wait: int) -> None:
        self.rooms[node].take(placement)
        self.cpu_left -= placement.cpu
        self.crews[load.step].rates.append((load.setup_us + wait, load.service_us[self.kinds[node]]))
        self.starts.append((load.step, node, placement, wait == 0))

    @classmethod
    def by(cls, problem: Problem, target: int) -> _Draft | None:
        """A plan that ends until then, or None."""
        draft = cls(problem)
        surplus: dict[int, list[Hand]] = {}
        missing: list[tuple[Load, int]] = []
        for load in problem.loads:
            keep, more = draft._needed(load, target)
            if more < 0:
                return None
            if load.spec.workers is None:
                keep = keep if load.certain or not load.blocked else 1
                surplus[load.step] = draft.kept[load.step][keep:]
            missing.append((load, more))
        missing.sort(key=lambda m: _size(m[0]))
        for load, more in missing:
            for _ in range(more):
                if not (draft._place_free(load) or draft._make_room(load, surplus)):
                    return None
        shared = problem.shared
        if shared.work and not draft._spare_for_shared(target, surplus):
            return None
        return draft

    def lend(self, target: int) -> None:
        """Steps with GPUs of which nothing is known get the GPUs of those that do not need theirs to end until then."""
        unsure = [load for load in self.problem.loads if not load.certain and load.spec.uses_gpu]
        if not unsure:
            return
        surplus = {}
        for load in self.problem.loads:
            if load.certain and load.spec.uses_gpu and load.spec.workers is None:
                keep, more = self._needed(load, target - target // 4)
                if more == 0:
                    surplus[load.step] = self.kept[load.step][keep:]
        while unsure:
            load = max(unsure, key=lambda x: (self.crews[x.step].finish(), x.step))
            end = self.crews[load.step].finish()
            if not (self._wants_more(load, end) and (self._place_free(load) or self._make_room(load, surplus))):
                unsure.remove(load)

    @classmethod
    def by_counts(cls, problem: Problem) -> _Draft | None:
        """A plan that gives every step a worker."""
        draft = cls(problem)
        surplus = {load.step: list(load.hands[1:]) for load in problem.loads}
        for load in sorted(problem.loads, key=_size):
            if not load.hands and not (draft._place_free(load) or draft._make_room(load, surplus)):
                return None
        return draft

    def _needed(self, load: Load, target: int) -> tuple[int, int]:
        """How many of its workers a step keeps, and how many it needs beside them; -1 if no number is enough."""
        hands = self.kept[load.step]
        if not load.certain:
            return len(hands), 0 if hands else 1
        if load.spec.workers is not None:
            return len(hands), max(0, min(load.spec.workers, load.most) - len(hands))
        if load.tasks <= 0:
            return min(1, len(hands)), 0 if hands else 1
        done = 0
        for n, hand in enumerate(hands):
            if done >= load.tasks and n:
                return n, 0
            done += max(0, target - hand.delay_us) * UNIT // load.service_us[self.kinds[hand.node]]
        left = load.tasks - done
        if left <= 0:
            return len(hands), 0 if hands else 1
        best = min(load.service_us.values())
        time = target - load.setup_us
        if time <= 0:
            return len(hands), -1
        more = -(-left * best // (time * UNIT))
        if len(hands) + more > load.most:
            more = max(0, load.most - len(hands))
            if load.most * UNIT < load.tasks:
                return len(hands), -1
        return len(hands), max(more, 0 if hands else 1)

    def _make_room(self, load: Load, surplus: dict[int, list[Hand]]) -> bool:
        """Let as few workers go as possible so that a worker of this step fits where they were."""
        best: tuple[int, int, list[tuple[int, Hand]]] | None = None
        by_node: dict[int, list[tuple[int, Hand]]] = {}
        keep_gpus = not load.spec.uses_gpu and self.unsure_gpus
        for step, hands in surplus.items():
            if step == load.step or (keep_gpus and self.crews[step].load.spec.uses_gpu):
                continue
            for hand in hands:
                if hand in self.kept[step]:
                    by_node.setdefault(hand.node, []).append((step, hand))
        for node, candidates in by_node.items():
            victims = _victims(self.rooms[node], load.spec, candidates)
            if victims and (best is None or len(victims) < best[0]):
                best = (len(victims), node, victims)
        if best is None:
            return False
        _, node, victims = best
        for step, hand in victims:
            self._let_go(step, hand)
        placement = self.rooms[node].find(load.spec)
        assert placement is not None, "room has been made"
        self._start(load, node, placement, self.problem.leave_us + 1)
        return True

    def _let_go(self, step: int, hand: Hand) -> None:
        self.rooms[hand.node].give(hand.placement)
        self.cpu_left += hand.placement.cpu
        self.kept[step].remove(hand)
        self.crews[step].rates.remove((hand.delay_us, self.crews[step].load.service_us[self.kinds[hand.node]]))
        self.leaves.append(hand)

    def _spare_for_shared(self, target: int, surplus: dict[int, list[Hand]]) -> bool:
        """Let workers go until shared steps have the CPUs they need."""
        shared = self.problem.shared
        spare = [
            (step, h) for step, hands in surplus.items() for h in hands if h in self.kept[step] and h.placement.cpu
        ]
        while shared.work > max(self.cpu_left, shared.floor) * target:
            if not spare:
                return False
            self._let_go(*spare.pop())
        return True

    def plan(self, stay: _Draft) -> Plan:
        counts = {i: len(crew.rates) for i, crew in self.crews.items()}
        finishes = {i: crew.finish() for i, crew in self.crews.items()}
        return Plan(
            counts,
            [(step, node, placement) for step, node, placement, now in self.starts if now],
            [hand.worker for hand in self.leaves],
            self.finish(),
            stay.finish(),
            finishes,
        )


def _victims(room: Room, spec: StepSpec, candidates: Sequence[tuple[int, Hand]]) -> list[tuple[int, Hand]]:
    """The fewest of these workers whose leaving makes room for a worker of ``spec`` on their node; none if impossible.

    What is short decides who goes: a GPU is freed by those on the one GPU that takes the fewest departures, CPUs and
    memory by those who hold most of them.
    """
    left = room.copy()
    victims: list[tuple[int, Hand]] = []
    if spec.uses_gpu:
        bare = StepSpec(spec.name, cpu=0, gpu=spec.gpu, gpu_memory=spec.gpu_memory)
        while left.find(bare) is None:
            choice = _fewest_on_a_gpu(left, bare, [x for x in candidates if x not in victims])
            if not choice:
                return []
            for x in choice:
                victims.append(x)
                left.give(x[1].placement)
    rest = [x for x in candidates if x not in victims]
    rest.sort(key=lambda x: (bool(x[1].placement.gpus), -x[1].placement.cpu))
    while left.find(spec) is None:
        short = [
            x
            for x in rest
            if (spec.cpu > left.cpu and x[1].placement.cpu) or (spec.memory > left.memory and x[1].placement.memory)
        ]
        if not short:
            return []
        rest.remove(short[0])
        victims.append(short[0])
        left.give(short[0][1].placement)
    return victims


def _fewest_on_a_gpu(room: Room, spec: StepSpec, candidates: list[tuple[int, Hand]]) -> list[tuple[int, Hand]]:
    best: list[tuple[int, Hand]] = []
    for gpu, free in enumerate(room.gpu_free):
        here = [x for x in candidates if gpu in x[1].placement.gpus]
        here.sort(key=lambda x: -x[1].placement.gpu_share)
        chosen: list[tuple[int, Hand]] = []
        trial = room.copy()
        for x in here:
            if spec.gpu <= UNIT and trial.find(spec) is not None:
                break
            if spec.gpu > UNIT and trial.gpu_free[gpu] == UNIT:
                break
            chosen.append(x)
            trial.give(x[1].placement)
        done = trial.gpu_free[gpu] == UNIT if spec.gpu > UNIT else trial.find(spec) is not None
        if done and chosen and free < UNIT and (not best or len(chosen) < len(best)):
            best = chosen
    return best
