"""A plan under construction: what each step lacks to end by a moment, where it gets it, and which workers leave."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.scheduling.placement import Placement
from gristmill.scheduling.planning.context import AT_LAST, PlanContext, Strategy
from gristmill.scheduling.planning.packing import FOREVER, Group, WorkerPool, less, put
from gristmill.scheduling.settings import UNIT

_FILL = 3
"""Steps that run ahead grow by this power of a half at a time."""


class Draft:
    """The workers with which all steps end by ``until``. Each step must have at least ``least`` workers."""

    def __init__(self, context: PlanContext, until: int, least: Sequence[int], may_leave: bool) -> None:
        self.context = context
        self.until = until
        self.least = least
        self.may_leave = may_leave
        self.groups = list(context.groups)
        self.count = list(context.have)
        self.short = [context.short(i, until) for i in range(len(context.demands))]
        """Tasks that would not be finished; below zero: what the step can spare."""
        self.cpu_left = context.cpu_left
        self.starts: list[tuple[int, Sequence[int], list[Placement], int, bool]] = []
        """(step, nodes, placements on each, kind of node, whether there is capacity now)."""
        self.leaves: list[tuple[int, Sequence[int]]] = []
        """(slot, nodes): one worker leaves this slot on each node."""
        self._pools: list[WorkerPool] | None = None

    @property
    def n_leaves(self) -> int:
        return sum(len(nodes) for _, nodes in self.leaves)

    def build(self, strategy: Strategy) -> bool:
        """Place the missing workers. Return False if the strategy fails."""
        order, spread = strategy
        for i in order:
            if self._lacks(i):
                self._place(i, False, spread)
            if self.may_leave and self._lacks(i):
                self._place(i, True, spread)
                self._free_capacity(i)
            if self._lacks(i):
                return False
        return self._leave_cpus_to_shared()

    def _lacks(self, i: int) -> bool:
        return self.short[i] > 0 or self.count[i] < self.least[i]

    def _wants(self, i: int, gain: int) -> int:
        """Return how many new workers a step needs if each finishes ``gain`` tasks."""
        n = self.least[i] - self.count[i]
        if self.short[i] > 0 and gain:
            n = max(n, -(-self.short[i] // gain))
        return min(n, self.context.cap[i] - self.count[i])

    def _place(self, i: int, later: bool, spread: bool) -> None:
        """Use capacity that is free now or, with ``later``, once workers have left."""
        context = self.context
        spec, ranks = context.demands[i].spec, context.ranks[i]
        found = [g for g in self.groups if g.opened == later and g.fits(i, spec)]
        if len(found) > 1:
            found.sort(key=lambda g: (ranks[g.kind], g.uses, g.free_gpu, g.capacity.cpu))
        for g in found:
            gain = context.gain(i, g.kind, self.until, context.problem.leave_us if later else 0)
            wants = self._wants(i, gain)
            if wants > 0:
                each = g.fits(i, spec)
                if spread and spec.uses_gpu and spec.cpu * (each + 1) > g.capacity.cpu:
                    # Where CPUs run out before GPUs, a node full of this step has GPUs that no worker can use.
                    each = min(each, -(-wants // len(g.nodes)))
                self._put(i, g, wants, gain, each)

    def _put(self, i: int, g: Group, wants: int, gain: int, each: int = 0) -> int:
        """Place workers on nodes of a group, filling each node before the next. Return how many."""
        each = each or g.fits(i, self.context.demands[i].spec)
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
        spec = self.context.demands[i].spec
        nodes = g.nodes[first:last]
        capacity = g.capacity.copy()
        placements = put(capacity, spec, n)
        self.groups.append(Group(g.kind, nodes, capacity, g.staff, g.uses, g.opened, g.closed))
        self.starts.append((i, nodes, placements, g.kind, not g.opened))
        self.cpu_left -= n * spec.cpu * len(nodes)
        self._pools = None

    def _can_leave(self, but: int) -> int:
        """Return the steps that can spare a worker, as bits."""
        bits = 0
        demands = self.context.demands
        keep_gpus = self.context.unsure_gpus and not (but >= 0 and demands[but].spec.uses_gpu)
        for j, seen in enumerate(self.context.seen):
            if keep_gpus and demands[j].spec.uses_gpu:
                continue
            if j != but and self.count[j] > self.least[j] and seen:
                cheapest = min(max(0, self.until - delay) * UNIT // service for delay, service, _ in seen)
                bits |= (self.short[j] + cheapest <= 0) << j
        return bits

    def _price(self, slot_id: int, kind: int) -> int:
        """Return the tasks that the worker of a slot does not finish if it leaves."""
        slot = self.context.slots[slot_id]
        service = self.context.demands[slot.demand].service_us[kind]
        return max(0, self.until - slot.delay_us) * UNIT // service

    def _times(self, slot_ids: Sequence[int], kind: int) -> int:
        """Return on how many nodes the workers of these slots can be spared."""
        price: dict[int, int] = {}
        number: dict[int, int] = {}
        for slot_id in slot_ids:
            j = self.context.slots[slot_id].demand
            price[j] = price.get(j, 0) + self._price(slot_id, kind)
            number[j] = number.get(j, 0) + 1
        times = min((self.count[j] - self.least[j]) // n for j, n in number.items())
        return min(times, *(max(0, -self.short[j]) // p for j, p in price.items() if p), times)

    def _free_capacity(self, i: int) -> None:
        """Remove as few workers as possible so that workers of this step fit in their place."""
        context = self.context
        spec, ranks = context.demands[i].spec, context.ranks[i]
        gains = {kind: context.gain(i, kind, self.until, context.problem.leave_us) for kind in ranks}
        while self._lacks(i):
            best: tuple[int, int, Group, tuple[int, ...], int] | None = None
            can_leave = self._can_leave(i)
            if not can_leave:
                return
            wants = {kind: self._wants(i, gain) for kind, gain in gains.items()}
            for g in self.groups:
                if wants[g.kind] <= 0:
                    continue
                slot_ids = g.leavers(i, spec, can_leave, context.slots)
                rank = ranks[g.kind]
                if slot_ids and (best is None or (len(slot_ids), rank) < best[:2]):
                    times = self._times(slot_ids, g.kind)
                    if times > 0:
                        best = (len(slot_ids), rank, g, slot_ids, min(times, wants[g.kind], len(g.nodes)))
                        if len(slot_ids) == 1 and rank == min(ranks.values()):
                            break
            if best is None:
                return
            _, _, g, slot_ids, times = best
            self._put(i, self._remove(g, slot_ids, times), times, gains[g.kind], each=1)

    def _remove(self, g: Group, slot_ids: Sequence[int], times: int) -> Group:
        """Remove the workers of these slots from ``times`` nodes of a group. Return those nodes."""
        capacity = g.capacity.copy()
        staff = g.staff
        nodes = g.nodes[:times]
        for slot_id in slot_ids:
            slot = self.context.slots[slot_id]
            capacity.give(slot.placement)
            staff = less(staff, slot_id)
            self.leaves.append((slot_id, nodes))
            self.count[slot.demand] -= times
            self.short[slot.demand] += times * self._price(slot_id, g.kind)
            self.cpu_left += times * slot.placement.cpu
        self._pools = None
        opened = Group(g.kind, nodes, capacity, staff, g.uses, True, g.closed)
        self.groups.remove(g)
        self.groups.append(opened)
        if times < len(g.nodes):
            self.groups.append(g.part(times, len(g.nodes)))
        return opened

    def _leave_cpus_to_shared(self) -> bool:
        """Remove workers that can be spared until shared steps have the CPUs they need."""
        work = self.context.problem.shared.work
        floor = self.context.problem.shared.floor
        while work > max(self.cpu_left, floor) * self.until:
            missing = -(-work // max(self.until, 1)) - self.cpu_left
            can_leave = self._can_leave(-1) if self.may_leave else 0
            for g in self.groups:
                spare = [c for c, _ in g.staff if can_leave >> self.context.slots[c].demand & 1]
                spare = [c for c in spare if self.context.slots[c].placement.cpu and self._times((c,), g.kind) > 0]
                if spare:
                    slot_id = max(spare, key=lambda c: (self.context.slots[c].delay_us, c))
                    enough = -(-missing // self.context.slots[slot_id].placement.cpu)
                    self._remove(g, (slot_id,), min(enough, len(g.nodes), self._times((slot_id,), g.kind)))
                    break
            else:
                return False
        return True

    def fill(self, reserve: bool) -> None:
        """Give free capacity to the step that ends last, repeatedly; then to steps before it, which can run ahead.

        Steps of unknown speed come last. With ``reserve``, steps without GPUs leave the CPUs that free GPUs could need.
        """
        ends = [pool.finish() for pool in self.pools()]
        sure = [i for i, demand in enumerate(self.context.demands) if demand.certain]
        lenders = [i for i in sure if self._would_lend(i, ends[i])] if self.context.unsure_gpus else []
        unsure = [i for i, demand in enumerate(self.context.demands) if not demand.certain]
        for steps in ([i for i in sure if i not in lenders], unsure, lenders):
            self._fill_those(steps, reserve)

    def _would_lend(self, i: int, end: int) -> bool:
        """Whether `lend` would take back GPUs that a step got."""
        spec = self.context.demands[i].spec
        return spec.uses_gpu and spec.workers is None and end <= _lent(self.finish())

    def _fill_those(self, steps: Sequence[int], reserve: bool) -> None:
        pools = self.pools()
        ends = {i: pools[i].finish() for i in steps}
        while ends:
            worst = max(ends, key=lambda i: (ends[i], i))
            if self._grow(worst, ends[worst], reserve):
                ends[worst] = self.pools()[worst].finish()
                continue
            del ends[worst]
            # Steps after it cannot end before it does. If its speed is unknown, its end is too.
            for i in [i for i in ends if i > worst and ends[i] < FOREVER]:
                del ends[i]

    def _grow(self, i: int, end: int, reserve: bool) -> bool:
        """Start some more workers of a step in free capacity. Return False if none can be placed or would help."""
        context = self.context
        demand = context.demands[i]
        spec = demand.spec
        have = self.count[i]
        if have and demand.setup_us + min(demand.service_us.values()) >= end - (end >> 10):
            return False
        if (
            not demand.certain
            and not spec.uses_gpu
            and i
            and context.demands[i - 1].certain
            and have >= self.count[i - 1]
        ):
            return False  # more workers than the step before it has would probably be idle
        n = min(max(1, have >> _FILL), context.cap[i] - have)
        # A step of unknown speed must not delay the shared steps: the next plan would take the CPUs back.
        by = end if demand.certain else min(end, self.finish())
        if have and spec.cpu:
            n = min(n, self._spare_cpu(by) // spec.cpu)
        if n <= 0:
            return False
        per_gpu = context.cpu_per_gpu if reserve and not spec.uses_gpu and have else 0
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
                fits = min(fits, (g.capacity.cpu - g.free_gpu * per_gpu // UNIT) // spec.cpu)
            if fits > 0:
                key = (context.ranks[i][g.kind], g.uses, g.free_gpu, g.capacity.cpu)
                if best is None or key < best_key:
                    best, best_key, best_fits = g, key, fits
        if best is None:
            return False
        pools = self.pools()
        placed = self._put(i, best, n, 0, each=best_fits)
        pools[i].add(demand.setup_us, demand.service_us[best.kind], placed)
        self._pools = pools
        return True

    def _spare_cpu(self, by: int) -> int:
        """Return the CPUs that shared steps can spare and still end by then."""
        shared = self.context.problem.shared
        if not shared.work or shared.floor * by >= shared.work:
            return FOREVER
        return self.cpu_left - -(-shared.work // max(by, 1))

    def pools(self) -> list[WorkerPool]:
        """Return the workers of each step after all starts and leaves."""
        if self._pools is None:
            context = self.context
            pools = [context.pool(i) for i in range(len(context.demands))]
            for i, nodes, placements, kind, now in self.starts:
                demand = context.demands[i]
                wait = 0 if now else context.problem.leave_us
                pools[i].add(demand.setup_us + wait, demand.service_us[kind], len(nodes) * len(placements))
            for slot_id, nodes in self.leaves:
                slot = context.slots[slot_id]
                service = context.demands[slot.demand].service_us
                for node in nodes:
                    pools[slot.demand].add(slot.delay_us, service[context.kinds[node]], -1)
            self._pools = pools
        return self._pools

    def finish(self) -> int:
        """Return when the run ends, as far as speeds are known."""
        demands, count = self.context.demands, self.count
        ends = [x.finish() for i, x in enumerate(self.pools()) if demands[i].certain or not count[i]]
        return max([self.context.shared_ends(self.cpu_left), *ends])

    def lend(self, until: int) -> None:
        """Give steps with GPUs and of unknown speed the GPUs that other steps do not need to end by then."""
        demands = self.context.demands
        unsure = [
            i
            for i, demand in enumerate(demands)
            if not demand.certain and demand.spec.uses_gpu and not demand.spec.workers
        ]
        if not unsure or not 0 < until < AT_LAST:
            return
        self.until = _lent(until)
        self.may_leave = True
        self.least = list(self.least)
        pools = self.pools()
        least_freed = FOREVER  # the fewest CPUs that a worker frees when it leaves
        for j, demand in enumerate(demands):
            lends = demand.certain and demand.spec.uses_gpu and demand.spec.workers is None
            self.short[j] = demand.tasks - pools[j].done(self.until) if lends else FOREVER
            least_freed = min(least_freed, demand.spec.cpu) if lends else least_freed
        while unsure:
            i = max(unsure, key=lambda i: (self.pools()[i].finish(), i))
            wanted = self.count[i] + 1
            soon = demands[i].setup_us + min(demands[i].service_us.values()) < self.pools()[i].finish()
            if soon and wanted <= self.context.cap[i]:
                self.least[i] = wanted
                self.short[i] = 0
                needs = demands[i].spec.cpu if self.count[i] else 0
                if needs <= self._spare_cpu(until):
                    self._place(i, False, False)
                if self._lacks(i) and needs - least_freed <= self._spare_cpu(until):
                    self._place(i, True, False)
                    self._free_capacity(i)
                self.short[i] = FOREVER
            if self.count[i] < wanted:
                unsure.remove(i)


def _lent(until: int) -> int:
    """Return by when a step must end to lend GPUs to others."""
    return until - until // 4
