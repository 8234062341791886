"""Data that all drafts of a plan share: nodes in groups of equals, and bounds that no plan can beat."""

from __future__ import annotations

from gristmill.scheduling.placement import Capacity, gpu_share
from gristmill.scheduling.planning.packing import FOREVER, Group, PlanSlot, WorkerPool, fitting
from gristmill.scheduling.planning.prices import WHOLE, costs, total
from gristmill.scheduling.planning.problem import Problem, StepDemand
from gristmill.scheduling.settings import UNIT

AT_LAST = 1 << 50
"""A moment by which any worker has finished everything."""

Strategy = tuple[tuple[int, ...], bool]
"""The order in which steps get places, and whether steps that need many CPUs for a GPU are spread."""
CapacityKey = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]


class PlanContext:
    """A problem, analysed once. Steps are referred to by their position among the demands."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.demands = problem.demands
        self.kinds = {site.id: site.kind for site in problem.sites}
        self.slots: list[PlanSlot] = []
        self.have = [0] * len(self.demands)
        self.seen: list[list[tuple[int, int, int]]] = []
        """(delay, service time, number) of the workers that each step has."""
        self.empty: dict[CapacityKey, tuple[Capacity, int]] = {}
        """The different nodes, as if empty, and how many there are of each."""
        self.groups: list[Group] = []
        self._group(self._assign_slots())
        self.cap = [
            max(1, have, min(demand.most, demand.spec.workers or demand.most))
            for demand, have in zip(self.demands, self.have, strict=True)
        ]
        """The most workers that a step may have."""
        self.cpu_left = sum(g.capacity.cpu * len(g.nodes) for g in self.groups)
        self.shares = [self._least_share(demand) for demand in self.demands]
        self.cheapest: list[int] = []
        """The cost of all the work of a step where it costs least, if kinds of nodes differ."""
        self.ranks = self._ranks()
        self.strategies = self._strategies()
        self.unsure_gpus = any(demand.spec.uses_gpu and not demand.certain for demand in self.demands)
        """Steps with GPUs and of unknown speed get spare GPUs before a step gets their CPUs."""
        self.cpu_per_gpu = max(
            (demand.spec.cpu * UNIT // share for demand, share in zip(self.demands, self.shares, strict=True) if share),
            default=0,
        )
        """CPUs that the workers on a GPU could need."""

    def _assign_slots(self) -> dict[int, list[int]]:
        """Give each worker a slot, shared by interchangeable workers of a node. Return the slots by node."""
        taken: dict[int, list[int]] = {site.id: [] for site in self.problem.sites}
        for i, demand in enumerate(self.demands):
            slot_ids: dict[object, int] = {}
            for worker in demand.workers:
                at = taken.get(worker.node)
                if at is None:
                    continue
                placement = worker.placement
                delay = worker.delay_us
                key = (placement.gpus, placement.gpu_share, delay) if placement.gpus else delay
                slot_id = slot_ids.get(key)
                if slot_id is None:
                    slot_id = slot_ids[key] = len(self.slots)
                    self.slots.append(PlanSlot(i, placement, delay))
                at.append(slot_id)
        return taken

    def _group(self, taken: dict[int, list[int]]) -> None:
        members: dict[tuple[CapacityKey, tuple[int, ...], int], list[int]] = {}
        for site in self.problem.sites:
            capacity = site.capacity
            key = (site.kind, capacity.cpu, capacity.memory, capacity.gpu_memory, tuple(capacity.gpu_free))
            self.empty[key] = (capacity, self.empty[key][1] + 1 if key in self.empty else 1)
            slot_ids = taken[site.id]
            slot_ids.sort()
            closed = sum(1 << i for i, x in enumerate(self.demands) if x.step in site.closed) if site.closed else 0
            members.setdefault((key, tuple(slot_ids), closed), []).append(site.id)
        uses = {
            key: sum(capacity.find(x.spec) is not None for x in self.demands)
            for key, (capacity, _) in self.empty.items()
        }
        # Workers without a GPU leave before workers with one, and those that start last before those that work.
        going = sorted(
            range(len(self.slots)), key=lambda c: (bool(self.slots[c].placement.gpus), -self.slots[c].delay_us)
        )
        rank = {slot_id: n for n, slot_id in enumerate(going)}
        seen: list[dict[tuple[int, int], int]] = [{} for _ in self.demands]
        for (key, sorted_codes, closed), nodes in members.items():
            left = self.empty[key][0].copy()
            workers: dict[int, int] = {}
            for slot_id in sorted_codes:
                workers[slot_id] = workers.get(slot_id, 0) + 1
            for slot_id, n in workers.items():
                i, placement, delay = self.slots[slot_id]
                for _ in range(n):
                    left.take(placement)
                slot_kind = (delay, key[0])
                seen[i][slot_kind] = seen[i].get(slot_kind, 0) + n * len(nodes)
            ordered = tuple(sorted(workers.items(), key=lambda x: rank[x[0]]))
            self.groups.append(Group(key[0], nodes, left, ordered, uses[key], closed=closed))
        for i, demand in enumerate(self.demands):
            self.have[i] = sum(seen[i].values())
            self.seen.append([(delay, demand.service_us[kind], n) for (delay, kind), n in sorted(seen[i].items())])

    def _ranks(self) -> list[dict[int, int]]:
        """Return what each kind of node costs a step, relative to the cheapest, in thousandths."""
        there: dict[int, list[int]] = {}
        for (kind, cpu, memory, _, gpu_free), (_, n) in self.empty.items():
            sums = there.setdefault(kind, [0, 0, 0])
            for r, amount in enumerate((cpu, memory, sum(gpu_free))):
                sums[r] += n * amount
        if len(there) < 2:
            return [dict.fromkeys(there, 0) for _ in self.demands]
        places = [{key[0] for key, (capacity, _) in self.empty.items() if capacity.find(x.spec)} for x in self.demands]
        by_resource = []
        for r in range(3):
            needs = []
            for i, demand in enumerate(self.demands):
                amount = (demand.spec.cpu, demand.spec.memory, self.shares[i])[r]
                work = demand.tasks * amount
                needs.append({k: work * demand.service_us[k] // (there[k][r] or 1) for k in sorted(places[i])})
            by_resource.append(costs(needs))
        sums = [total(x) for x in by_resource]
        scarcest = by_resource[sums.index(max(sums))]
        self.cheapest = [min(cost.values(), default=0) for cost in scarcest]
        ranks = []
        for i in range(len(self.demands)):
            # Scarce resources decide, but not alone: a step that needs none of them still has a best place.
            cost = {k: sum(x[i][k] * n * n for x, n in zip(by_resource, sums, strict=True)) for k in sorted(places[i])}
            least = min(cost.values(), default=0) or 1
            ranks.append({kind: cost.get(kind, least << 10) * 1000 // least for kind in there})
        return ranks

    def _strategies(self) -> list[Strategy]:
        """Return the strategies: by size, by how much a step needs its kind of node, by how few places fit it."""
        cpu = max((key[1] for key in self.empty), default=1) or 1
        memory = max((key[2] for key in self.empty), default=1) or 1

        def size(i: int) -> tuple[int, ...]:
            spec = self.demands[i].spec
            part = max(spec.cpu * UNIT // cpu, spec.memory * UNIT // memory)
            return (-spec.gpu, -spec.gpu_memory, -part, -spec.cpu, i)

        def pull(i: int) -> int:
            ranks = self.ranks[i].values()
            return min(ranks, default=0) - max(ranks, default=0)

        def places(i: int) -> int:
            return sum(fitting(capacity, self.demands[i].spec) * n for capacity, n in self.empty.values())

        steps = range(len(self.demands))
        by_size = tuple(sorted(steps, key=size))
        strategies = [(by_size, True)]
        if len(self.kinds) > 1 and any(self.shares):
            strategies.append((by_size, False))
        if len(self.empty) > 1:
            strategies.append((tuple(sorted(steps, key=lambda i: (pull(i), size(i)))), True))
            strategies.append((tuple(sorted(steps, key=lambda i: (places(i), i))), True))
        return list(dict.fromkeys(strategies))

    def _least_share(self, demand: StepDemand) -> int:
        """Return the smallest amount of GPUs that a worker takes on any node."""
        spec = demand.spec
        if not spec.uses_gpu:
            return 0
        if spec.gpu:
            return -(-spec.gpu // UNIT) * UNIT if spec.gpu > UNIT else spec.gpu
        return min((gpu_share(spec, memory) for key in self.empty for memory in key[3]), default=UNIT)

    def gain(self, i: int, kind: int, until: int, wait: int) -> int:
        """Return the tasks that a new worker finishes by a moment; 0 if not even one."""
        demand = self.demands[i]
        time = until - demand.setup_us - wait
        service = demand.service_us[kind]
        return 0 if time * UNIT < service * min(demand.tasks, UNIT) else time * UNIT // service

    def done(self, i: int, until: int) -> int:
        """Return the tasks that the workers of a step finish by a moment."""
        return sum(max(0, until - delay) * UNIT // service * n for delay, service, n in self.seen[i])

    def short(self, i: int, until: int) -> int:
        """Return the tasks of a step that its workers do not finish by a moment; below zero: what they can spare."""
        demand = self.demands[i]
        if demand.certain:
            return demand.tasks - self.done(i, until)
        # With AT_LAST a worker may leave so that each step can have one.
        return -FOREVER if demand.blocked or until >= AT_LAST else 0

    def pool(self, i: int) -> WorkerPool:
        pool = WorkerPool(self.demands[i].tasks)
        for delay, service, n in self.seen[i]:
            pool.add(delay, service, n)
        return pool

    def shared_ends(self, cpu_left: int) -> int:
        shared = self.problem.shared
        return shared.work // max(cpu_left, shared.floor, 1) if shared.work else 0

    def bound(self, least: list[int], may_leave: bool, high: int) -> int:
        """Return a moment before which no plan ends."""
        low = 0
        while high - low > max(high >> 11, 1):
            middle = (low + high) // 2
            low, high = (low, middle) if self.could(middle, least, may_leave) else (middle, high)
        return low

    def could(self, until: int, least: list[int], may_leave: bool) -> bool:
        """Whether the resources of all nodes, taken together, are enough."""
        cpu = memory = gpu = halves = gpus = 0
        shared = self.problem.shared
        if shared.floor * until < shared.work:
            cpu -= -(-shared.work // max(until, 1))
        for (_, node_cpu, node_memory, gpu_memory, gpu_free), (_, n) in self.empty.items():
            cpu += n * node_cpu
            memory += n * node_memory
            gpu += n * sum(gpu_free)
            gpus += n * len(gpu_memory)
        for i, demand in enumerate(self.demands):
            needed = self.fewest(i, until, least[i], may_leave)
            if needed < 0:
                return False
            cpu -= needed * demand.spec.cpu
            memory -= needed * demand.spec.memory
            gpu -= needed * self.shares[i]
            halves += needed * -(-self.shares[i] // UNIT) if self.shares[i] * 2 > UNIT else 0
        if cpu < 0 or memory < 0 or gpu < 0 or halves > gpus:
            return False
        return not self.cheapest or self._could_by_kind(until)

    def _could_by_kind(self, until: int) -> bool:
        """`could` where kinds of nodes differ: each step counts with its least cost."""
        spent = 0
        for demand, seen, cost in zip(self.demands, self.seen, self.cheapest, strict=True):
            if not demand.certain:
                continue
            time = until - min([demand.setup_us, *(delay for delay, _, _ in seen)])
            if time <= 0 < demand.tasks:
                return False
            spent += cost // (max(time, 1) * UNIT)
        return spent <= WHOLE

    def fewest(self, i: int, until: int, least: int, may_leave: bool) -> int:
        """Return the fewest workers with which a step could finish by then; -1 if there is no such number."""
        demand = self.demands[i]
        if not demand.certain:
            return max(least, 0 if may_leave and (demand.blocked or until >= AT_LAST) else self.have[i])
        left = demand.tasks
        new = max((self.gain(i, key[0], until, 0) for key in self.empty), default=0)
        n = 0
        by_gain = [(max(0, until - delay) * UNIT // service, number) for delay, service, number in self.seen[i]]
        for gain, number in sorted(by_gain, reverse=True):
            if may_leave:
                number = min(number, -(-left // gain)) if left > 0 and gain > new else 0
            n += number
            left -= number * gain
        if left > 0:
            if not new:
                return -1
            n += -(-left // new)
        n = max(n, least)
        return n if n <= self.cap[i] or n <= self.have[i] else -1
