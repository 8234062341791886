"""A plan in the making: what each step lacks until a moment, where it can get it, and who leaves for it."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.scheduling.placement import Placement
from gristmill.scheduling.planning.frame import AT_LAST, Frame, Way
from gristmill.scheduling.planning.packing import FOREVER, Crew, Group, fitting, less, put
from gristmill.scheduling.settings import UNIT

_FILL = 3
"""Steps that run ahead grow by this power of a half at a time."""


class Draft:
    """What should be so that all is done at ``until``; ``least`` says how many workers each step must have."""

    def __init__(self, frame: Frame, until: int, least: Sequence[int], may_leave: bool) -> None:
        self.frame = frame
        self.until = until
        self.least = least
        self.may_leave = may_leave
        self.groups = list(frame.groups)
        self.count = list(frame.have)
        self.short = [frame.short(i, until) for i in range(len(frame.loads))]
        """Tasks that would not be done; below zero what could be spared."""
        self.cpu_left = frame.cpu_left
        self.starts: list[tuple[int, Sequence[int], list[Placement], int, bool]] = []
        """(step, nodes, placements on each, kind of node, whether there is room now)."""
        self.leaves: list[tuple[int, Sequence[int]]] = []
        """(seat, nodes): one worker leaves this seat on each node."""
        self._crews: list[Crew] | None = None

    @property
    def n_leaves(self) -> int:
        return sum(len(nodes) for _, nodes in self.leaves)

    def build(self, way: Way) -> bool:
        """Place what is missing. False if it cannot be done this way."""
        order, spread = way
        for i in order:
            if self._lacks(i):
                self._place(i, False, spread)
            if self.may_leave and self._lacks(i):
                self._place(i, True, spread)
                self._make_room(i)
            if self._lacks(i):
                return False
        return self._leave_cpus_to_shared()

    def _lacks(self, i: int) -> bool:
        return self.short[i] > 0 or self.count[i] < self.least[i]

    def _wants(self, i: int, gain: int) -> int:
        """How many new workers a step wants where each gets so much done."""
        n = self.least[i] - self.count[i]
        if self.short[i] > 0 and gain:
            n = max(n, -(-self.short[i] // gain))
        return min(n, self.frame.cap[i] - self.count[i])

    def _place(self, i: int, later: bool, spread: bool) -> None:
        """Use free room; ``later`` that which those who leave have left."""
        frame = self.frame
        spec, ranks = frame.loads[i].spec, frame.ranks[i]
        found = [g for g in self.groups if g.opened == later and g.fits(i, spec)]
        if len(found) > 1:
            found.sort(key=lambda g: (ranks[g.kind], g.uses, g.free_gpu, g.room.cpu))
        for g in found:
            gain = frame.gain(i, g.kind, self.until, frame.problem.leave_us if later else 0)
            wants = self._wants(i, gain)
            if wants > 0:
                each = g.fits(i, spec)
                if spread and spec.uses_gpu and spec.cpu * (each + 1) > g.room.cpu:
                    # Where CPUs run out before GPUs, a node full of this step has GPUs that nobody can use.
                    each = min(each, -(-wants // len(g.nodes)))
                self._put(i, g, wants, gain, each)

    def _put(self, i: int, g: Group, wants: int, gain: int, each: int = 0) -> int:
        """Put workers on nodes of a group, each node filled before the next."""
        each = each or g.fits(i, self.frame.loads[i].spec)
        n = min(wants, each * len(g.nodes))
        full, rest = divmod(n, each)
        self.groups.remove(g)
        if full:
            self._put_each(i, g, 0, full, each)
        if rest:
            self._put_each(i, g, full, full + 1, rest)
        if full + bool(rest) < len(g.nodes):
            self.groups.append(g.part(full + bool(rest), len(g.nodes)))
        self.count[i] += n
        self.short[i] -= n * gain
        return n

    def _put_each(self, i: int, g: Group, first: int, last: int, n: int) -> None:
        spec = self.frame.loads[i].spec
        nodes = g.nodes[first:last]
        room = g.room.copy()
        placements = put(room, spec, n)
        self.groups.append(Group(g.kind, nodes, room, g.hands, g.uses, g.opened, g.closed))
        self.starts.append((i, nodes, placements, g.kind, not g.opened))
        self.cpu_left -= n * spec.cpu * len(nodes)
        self._crews = None

    def _may_go(self, but: int) -> int:
        """The steps that can spare a worker, as bits."""
        bits = 0
        loads = self.frame.loads
        keep_gpus = self.frame.unsure_gpus and not (but >= 0 and loads[but].spec.uses_gpu)
        for j, seen in enumerate(self.frame.seen):
            if keep_gpus and loads[j].spec.uses_gpu:
                continue
            if j != but and self.count[j] > self.least[j] and seen:
                cheapest = min(max(0, self.until - delay) * UNIT // service for delay, service, _ in seen)
                bits |= (self.short[j] + cheapest <= 0) << j
        return bits

    def _price(self, code: int, kind: int) -> int:
        """Tasks that are not done by the worker of a seat if it leaves."""
        seat = self.frame.seats[code]
        service = self.frame.loads[seat.load].service_us[kind]
        return max(0, self.until - seat.delay_us) * UNIT // service

    def _how_often(self, codes: Sequence[int], kind: int) -> int:
        """On how many nodes the workers of these seats can be spared."""
        price: dict[int, int] = {}
        number: dict[int, int] = {}
        for code in codes:
            j = self.frame.seats[code].load
            price[j] = price.get(j, 0) + self._price(code, kind)
            number[j] = number.get(j, 0) + 1
        times = min((self.count[j] - self.least[j]) // n for j, n in number.items())
        return min(times, *(max(0, -self.short[j]) // p for j, p in price.items() if p), times)

    def _make_room(self, i: int) -> None:
        """Let as few workers go as possible so that workers of this step fit where they were."""
        frame = self.frame
        spec, ranks = frame.loads[i].spec, frame.ranks[i]
        gains = {kind: frame.gain(i, kind, self.until, frame.problem.leave_us) for kind in ranks}
        while self._lacks(i):
            best: tuple[int, int, Group, tuple[int, ...], int] | None = None
            may_go = self._may_go(i)
            if not may_go:
                return
            wants = {kind: self._wants(i, gain) for kind, gain in gains.items()}
            for g in self.groups:
                if wants[g.kind] <= 0:
                    continue
                codes = g.victims(i, spec, may_go, frame.seats)
                rank = ranks[g.kind]
                if codes and (best is None or (len(codes), rank) < best[:2]):
                    times = self._how_often(codes, g.kind)
                    if times > 0:
                        best = (len(codes), rank, g, codes, min(times, wants[g.kind], len(g.nodes)))
                        if len(codes) == 1 and rank == min(ranks.values()):
                            break
            if best is None:
                return
            _, _, g, codes, times = best
            self._put(i, self._let_go(g, codes, times), times, gains[g.kind], each=1)

    def _let_go(self, g: Group, codes: Sequence[int], times: int) -> Group:
        """The workers of these seats leave so many nodes of a group."""
        room = g.room.copy()
        hands = g.hands
        nodes = g.nodes[:times]
        for code in codes:
            seat = self.frame.seats[code]
            room.give(seat.placement)
            hands = less(hands, code)
            self.leaves.append((code, nodes))
            self.count[seat.load] -= times
            self.short[seat.load] += times * self._price(code, g.kind)
            self.cpu_left += times * seat.placement.cpu
        self._crews = None
        opened = Group(g.kind, nodes, room, hands, g.uses, True, g.closed)
        self.groups.remove(g)
        self.groups.append(opened)
        if times < len(g.nodes):
            self.groups.append(g.part(times, len(g.nodes)))
        return opened

    def _leave_cpus_to_shared(self) -> bool:
        """Let workers go that can be spared until shared steps have the CPUs they need."""
        work = self.frame.problem.shared.work
        floor = self.frame.problem.shared.floor
        while work > max(self.cpu_left, floor) * self.until:
            missing = -(-work // max(self.until, 1)) - self.cpu_left
            may_go = self._may_go(-1) if self.may_leave else 0
            for g in self.groups:
                spare = [c for c, _ in g.hands if may_go >> self.frame.seats[c].load & 1]
                spare = [c for c in spare if self.frame.seats[c].placement.cpu and self._how_often((c,), g.kind) > 0]
                if spare:
                    code = max(spare, key=lambda c: (self.frame.seats[c].delay_us, c))
                    enough = -(-missing // self.frame.seats[code].placement.cpu)
                    self._let_go(g, (code,), min(enough, len(g.nodes), self._how_often((code,), g.kind)))
                    break
            else:
                return False
        return True

    def fill(self, reserve: bool) -> None:
        """Give free room to the step that ends last, again and again; then to those before it, which can run ahead.

        Steps of which nothing is known come last. With ``reserve`` the CPUs that free GPUs could need are left alone by
        steps without GPUs.
        """
        ends = [crew.finish() for crew in self.crews()]
        sure = [i for i, load in enumerate(self.frame.loads) if load.certain]
        lenders = [i for i in sure if self._would_lend(i, ends[i])] if self.frame.unsure_gpus else []
        unsure = [i for i, load in enumerate(self.frame.loads) if not load.certain]
        for steps in ([i for i in sure if i not in lenders], unsure, lenders):
            self._fill_those(steps, reserve)

    def _would_lend(self, i: int, end: int) -> bool:
        """Whether `lend` would take the GPUs again that a step got."""
        spec = self.frame.loads[i].spec
        return spec.uses_gpu and spec.workers is None and end <= _lent(self.finish())

    def _fill_those(self, steps: Sequence[int], reserve: bool) -> None:
        crews = self.crews()
        ends = {i: crews[i].finish() for i in steps}
        while ends:
            worst = max(ends, key=lambda i: (ends[i], i))
            if self._grow(worst, ends[worst], reserve):
                ends[worst] = self.crews()[worst].finish()
                continue
            del ends[worst]
            # Those behind it cannot end before it does. While nothing is known of it, nor is that.
            for i in [i for i in ends if i > worst and ends[i] < FOREVER]:
                del ends[i]

    def _grow(self, i: int, end: int, reserve: bool) -> bool:
        """Some more workers for a step, in free room."""
        frame = self.frame
        load = frame.loads[i]
        spec = load.spec
        have = self.count[i]
        if have and load.setup_us + min(load.service_us.values()) >= end - (end >> 10):
            return False
        if not load.certain and not spec.uses_gpu and i and frame.loads[i - 1].certain and have >= self.count[i - 1]:
            return False  # more than the step before it has could not be kept busy, as far as one can guess
        n = min(max(1, have >> _FILL), frame.cap[i] - have)
        # A step of which nothing is known must not delay the shared steps: the next plan would take the CPUs back.
        by = end if load.certain else min(end, self.finish())
        if have and spec.cpu:
            n = min(n, self._spare_cpu(by) // spec.cpu)
        if n <= 0:
            return False
        per_gpu = frame.cpu_per_gpu if reserve and not spec.uses_gpu and have else 0
        best: Group | None = None
        best_key: tuple[int, ...] = ()
        best_fits = 0
        for g in self.groups:
            if g.opened:
                continue
            fits = g.fit.get(i)
            if fits is None:
                fits = g.fits(i, spec)
            if fits and per_gpu and spec.cpu and g.free_gpu:
                fits = min(fits, (g.room.cpu - g.free_gpu * per_gpu // UNIT) // spec.cpu)
            if fits > 0:
                key = (frame.ranks[i][g.kind], g.uses, g.free_gpu, g.room.cpu)
                if best is None or key < best_key:
                    best, best_key, best_fits = g, key, fits
        if best is None:
            return False
        crews = self.crews()
        placed = self._put(i, best, n, 0, each=best_fits)
        crews[i].add(load.setup_us, load.service_us[best.kind], placed)
        self._crews = crews
        return True

    def _spare_cpu(self, by: int) -> int:
        """CPUs that shared steps can spare and still end by then."""
        shared = self.frame.problem.shared
        if not shared.work or shared.floor * by >= shared.work:
            return FOREVER
        return self.cpu_left - -(-shared.work // max(by, 1))

    def crews(self) -> list[Crew]:
        """The workers of each step once all is done."""
        if self._crews is None:
            frame = self.frame
            crews = [frame.crew(i) for i in range(len(frame.loads))]
            for i, nodes, placements, kind, now in self.starts:
                load = frame.loads[i]
                wait = 0 if now else frame.problem.leave_us
                crews[i].add(load.setup_us + wait, load.service_us[kind], len(nodes) * len(placements))
            for code, nodes in self.leaves:
                seat = frame.seats[code]
                service = frame.loads[seat.load].service_us
                for node in nodes:
                    crews[seat.load].add(seat.delay_us, service[frame.kinds[node]], -1)
            self._crews = crews
        return self._crews

    def finish(self) -> int:
        """When all is done, as far as is known."""
        loads, count = self.frame.loads, self.count
        ends = [x.finish() for i, x in enumerate(self.crews()) if loads[i].certain or not count[i]]
        return max([self.frame.shared_ends(self.cpu_left), *ends])

    def lend(self, until: int) -> None:
        """Steps with GPUs of which nothing is known get the GPUs of those that do not need theirs to end by then."""
        loads = self.frame.loads
        unsure = [
            i for i, load in enumerate(loads) if not load.certain and load.spec.uses_gpu and not load.spec.workers
        ]
        if not unsure or not 0 < until < AT_LAST:
            return
        self.until = _lent(until)
        self.may_leave = True
        self.least = list(self.least)
        crews = self.crews()
        least_freed = FOREVER  # the fewest CPUs that a worker which leaves sets free
        for j, load in enumerate(loads):
            lends = load.certain and load.spec.uses_gpu and load.spec.workers is None
            self.short[j] = load.tasks - crews[j].done(self.until) if lends else FOREVER
            least_freed = min(least_freed, load.spec.cpu) if lends else least_freed
        while unsure:
            i = max(unsure, key=lambda i: (self.crews()[i].finish(), i))
            wanted = self.count[i] + 1
            soon = loads[i].setup_us + min(loads[i].service_us.values()) < self.crews()[i].finish()
            if soon and wanted <= self.frame.cap[i]:
                self.least[i] = wanted
                self.short[i] = 0
                needs = loads[i].spec.cpu if self.count[i] else 0
                if needs <= self._spare_cpu(until):
                    self._place(i, False, False)
                if self._lacks(i) and needs - least_freed <= self._spare_cpu(until):
                    self._place(i, True, False)
                    self._make_room(i)
                self.short[i] = FOREVER
            if self.count[i] < wanted:
                unsure.remove(i)


def _lent(until: int) -> int:
    """By when a step must end to lend GPUs to others."""
    return until - until // 4


def repacked(frame: Frame, least: Sequence[int]) -> Draft | None:
    """A draft from scratch: every step has its least, where it has somebody if possible; whoever still fits stays."""
    for order in dict.fromkeys(order for order, _ in frame.ways):
        for prefer_kept in (True, False):
            draft = _repacked(frame, least, order, prefer_kept)
            if draft is not None:
                return draft
    return None


def _repacked(frame: Frame, least: Sequence[int], order: Sequence[int], prefer_kept: bool) -> Draft | None:
    sites = [(g, node) for g in frame.groups for node in g.nodes]
    rooms = []
    for g, _ in sites:
        room = g.room.copy()
        for code, n in g.hands:
            for _ in range(n):
                room.give(frame.seats[code].placement)
        rooms.append(room)
    going = [[code for code, n in g.hands for _ in range(n)] for g, _ in sites]
    starts: list[tuple[int, int, list[Placement]]] = []

    def keep(i: int, most: int) -> int:
        n = 0
        for k, codes in enumerate(going):
            for code in [c for c in codes if frame.seats[c].load == i]:
                placement = frame.seats[code].placement
                if n < most and rooms[k].fits(placement):
                    rooms[k].take(placement)
                    codes.remove(code)
                    n += 1
        return n

    for i in order:
        spec = frame.loads[i].spec
        n = keep(i, least[i]) if prefer_kept else 0
        for k, room in enumerate(rooms):
            more = min(least[i] - n, fitting(room, spec)) if not sites[k][0].closed >> i & 1 else 0
            if more > 0:
                starts.append((i, k, put(room, spec, more)))
                n += more
        if n < least[i]:
            return None
    draft = Draft(frame, AT_LAST, least, True)
    for i in order:
        keep(i, frame.have[i])
    for i, k, placements in starts:
        draft.starts.append((i, (sites[k][1],), placements, sites[k][0].kind, not going[k]))
        draft.count[i] += len(placements)
    draft.groups = []
    for (g, node), room, codes in zip(sites, rooms, going, strict=True):
        hands = g.hands
        for code in codes:
            hands = less(hands, code)
            draft.leaves.append((code, (node,)))
            draft.count[frame.seats[code].load] -= 1
        draft.groups.append(Group(g.kind, (node,), room, hands, g.uses, bool(codes), g.closed))
    draft.cpu_left = sum(room.cpu for room in rooms)
    return draft
