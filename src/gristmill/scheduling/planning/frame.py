"""What is the same for every draft of a plan: nodes in groups of equals, and what no plan can do better than."""

from __future__ import annotations

from gristmill.scheduling.placement import Capacity, gpu_share
from gristmill.scheduling.planning.packing import FOREVER, Crew, Group, Seat, fitting
from gristmill.scheduling.planning.prices import WHOLE, costs, total
from gristmill.scheduling.planning.problem import Load, Problem
from gristmill.scheduling.settings import UNIT

AT_LAST = 1 << 50
"""A moment by which any worker has done everything."""

Way = tuple[tuple[int, ...], bool]
"""In which order steps get their places, and whether those that need many CPUs for a GPU are spread."""
_RoomKey = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]


class Frame:
    """A problem, looked at once. Steps are known by their position among the loads."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.loads = problem.loads
        self.kinds = {site.id: site.kind for site in problem.sites}
        self.seats: list[Seat] = []
        self.have = [0] * len(self.loads)
        self.seen: list[list[tuple[int, int, int]]] = []
        """(delay, service time, number) of the workers that each step has."""
        self.empty: dict[_RoomKey, tuple[Capacity, int]] = {}
        """The different nodes as if empty, and how many there are of each."""
        self.groups: list[Group] = []
        self._group(self._sit())
        self.cap = [
            max(1, have, min(load.most, load.spec.workers or load.most))
            for load, have in zip(self.loads, self.have, strict=True)
        ]
        """More workers than this a step may not have."""
        self.cpu_left = sum(g.room.cpu * len(g.nodes) for g in self.groups)
        self.shares = [self._least_share(load) for load in self.loads]
        self.cheapest: list[int] = []
        """What all the work of a step costs where that is least, if kinds of nodes differ."""
        self.ranks = self._ranks()
        self.ways = self._ways()
        self.unsure_gpus = any(load.spec.uses_gpu and not load.certain for load in self.loads)
        """GPUs that are to spare go to steps of which nothing is known, not to those that want a CPU."""
        self.cpu_per_gpu = max(
            (load.spec.cpu * UNIT // share for load, share in zip(self.loads, self.shares, strict=True) if share),
            default=0,
        )
        """CPUs that the workers on a GPU could need."""

    def _sit(self) -> dict[int, list[int]]:
        """Give each hand a seat, equal for those who are interchangeable on a node: the seats taken on each node."""
        taken: dict[int, list[int]] = {site.id: [] for site in self.problem.sites}
        for i, load in enumerate(self.loads):
            codes: dict[object, int] = {}
            for hand in load.hands:
                at = taken.get(hand.node)
                if at is None:
                    continue
                placement = hand.placement
                delay = hand.delay_us
                key = (placement.gpus, placement.gpu_share, delay) if placement.gpus else delay
                code = codes.get(key)
                if code is None:
                    code = codes[key] = len(self.seats)
                    self.seats.append(Seat(i, placement, delay))
                at.append(code)
        return taken

    def _group(self, taken: dict[int, list[int]]) -> None:
        members: dict[tuple[_RoomKey, tuple[int, ...], int], list[int]] = {}
        for site in self.problem.sites:
            room = site.room
            key = (site.kind, room.cpu, room.memory, room.gpu_memory, tuple(room.gpu_free))
            self.empty[key] = (room, self.empty[key][1] + 1 if key in self.empty else 1)
            codes = taken[site.id]
            codes.sort()
            closed = sum(1 << i for i, x in enumerate(self.loads) if x.step in site.closed) if site.closed else 0
            members.setdefault((key, tuple(codes), closed), []).append(site.id)
        uses = {key: sum(room.find(x.spec) is not None for x in self.loads) for key, (room, _) in self.empty.items()}
        # Who holds no GPU goes before who does, who has longest to wait before who works.
        going = sorted(
            range(len(self.seats)), key=lambda c: (bool(self.seats[c].placement.gpus), -self.seats[c].delay_us)
        )
        rank = {code: n for n, code in enumerate(going)}
        seen: list[dict[tuple[int, int], int]] = [{} for _ in self.loads]
        for (key, sorted_codes, closed), nodes in members.items():
            left = self.empty[key][0].copy()
            hands: dict[int, int] = {}
            for code in sorted_codes:
                hands[code] = hands.get(code, 0) + 1
            for code, n in hands.items():
                i, placement, delay = self.seats[code]
                for _ in range(n):
                    left.take(placement)
                who = (delay, key[0])
                seen[i][who] = seen[i].get(who, 0) + n * len(nodes)
            ordered = tuple(sorted(hands.items(), key=lambda x: rank[x[0]]))
            self.groups.append(Group(key[0], nodes, left, ordered, uses[key], closed=closed))
        for i, load in enumerate(self.loads):
            self.have[i] = sum(seen[i].values())
            self.seen.append([(delay, load.service_us[kind], n) for (delay, kind), n in sorted(seen[i].items())])

    def _ranks(self) -> list[dict[int, int]]:
        """How dear each kind of node is for a step, against the cheapest: it goes where that is least."""
        there: dict[int, list[int]] = {}
        for (kind, cpu, memory, _, gpu_free), (_, n) in self.empty.items():
            sums = there.setdefault(kind, [0, 0, 0])
            for r, amount in enumerate((cpu, memory, sum(gpu_free))):
                sums[r] += n * amount
        if len(there) < 2:
            return [dict.fromkeys(there, 0) for _ in self.loads]
        places = [{key[0] for key, (room, _) in self.empty.items() if room.find(x.spec)} for x in self.loads]
        by_resource = []
        for r in range(3):
            needs = []
            for i, load in enumerate(self.loads):
                amount = (load.spec.cpu, load.spec.memory, self.shares[i])[r]
                work = load.tasks * amount
                needs.append({k: work * load.service_us[k] // (there[k][r] or 1) for k in sorted(places[i])})
            by_resource.append(costs(needs))
        sums = [total(x) for x in by_resource]
        scarcest = by_resource[sums.index(max(sums))]
        self.cheapest = [min(cost.values(), default=0) for cost in scarcest]
        ranks = []
        for i in range(len(self.loads)):
            # What is scarce decides, but not alone: a step that needs none of it still has a place where it is best.
            cost = {k: sum(x[i][k] * n * n for x, n in zip(by_resource, sums, strict=True)) for k in sorted(places[i])}
            least = min(cost.values(), default=0) or 1
            ranks.append({kind: cost.get(kind, least << 10) * 1000 // least for kind in there})
        return ranks

    def _ways(self) -> list[Way]:
        """How steps get their places: the largest first; those that most need a kind of node; the choosiest."""
        cpu = max((key[1] for key in self.empty), default=1) or 1
        memory = max((key[2] for key in self.empty), default=1) or 1

        def size(i: int) -> tuple[int, ...]:
            spec = self.loads[i].spec
            part = max(spec.cpu * UNIT // cpu, spec.memory * UNIT // memory)
            return (-spec.gpu, -spec.gpu_memory, -part, -spec.cpu, i)

        def pull(i: int) -> int:
            ranks = self.ranks[i].values()
            return min(ranks, default=0) - max(ranks, default=0)

        def places(i: int) -> int:
            return sum(fitting(room, self.loads[i].spec) * n for room, n in self.empty.values())

        steps = range(len(self.loads))
        by_size = tuple(sorted(steps, key=size))
        ways = [(by_size, True)]
        if len(self.kinds) > 1 and any(self.shares):
            ways.append((by_size, False))
        if len(self.empty) > 1:
            ways.append((tuple(sorted(steps, key=lambda i: (pull(i), size(i)))), True))
            ways.append((tuple(sorted(steps, key=lambda i: (places(i), i))), True))
        return list(dict.fromkeys(ways))

    def _least_share(self, load: Load) -> int:
        """The least of all GPUs that a worker can take."""
        spec = load.spec
        if not spec.uses_gpu:
            return 0
        if spec.gpu:
            return -(-spec.gpu // UNIT) * UNIT if spec.gpu > UNIT else spec.gpu
        return min((gpu_share(spec, memory) for key in self.empty for memory in key[3]), default=UNIT)

    def gain(self, i: int, kind: int, until: int, wait: int) -> int:
        """Tasks that a new worker gets done by a moment; none if it does not even get one done."""
        load = self.loads[i]
        time = until - load.setup_us - wait
        service = load.service_us[kind]
        return 0 if time * UNIT < service * min(load.tasks, UNIT) else time * UNIT // service

    def done(self, i: int, until: int) -> int:
        """Tasks that the workers of a step get done by a moment."""
        return sum(max(0, until - delay) * UNIT // service * n for delay, service, n in self.seen[i])

    def short(self, i: int, until: int) -> int:
        """Tasks of a step that its workers would not get done by a moment; below zero what could be spared."""
        load = self.loads[i]
        if load.certain:
            return load.tasks - self.done(i, until)
        # By the last moment anything is done: then a worker may leave so that each step can have one.
        return -FOREVER if load.blocked or until >= AT_LAST else 0

    def crew(self, i: int) -> Crew:
        crew = Crew(self.loads[i].tasks)
        for delay, service, n in self.seen[i]:
            crew.add(delay, service, n)
        return crew

    def shared_ends(self, cpu_left: int) -> int:
        shared = self.problem.shared
        return shared.work // max(cpu_left, shared.floor, 1) if shared.work else 0

    def bound(self, least: list[int], may_leave: bool, high: int) -> int:
        """No plan ends before this."""
        low = 0
        while high - low > max(high >> 11, 1):
            middle = (low + high) // 2
            low, high = (low, middle) if self.could(middle, least, may_leave) else (middle, high)
        return low

    def could(self, until: int, least: list[int], may_leave: bool) -> bool:
        """Whether the sums of all nodes would be enough."""
        cpu = memory = gpu = halves = gpus = 0
        shared = self.problem.shared
        if shared.floor * until < shared.work:
            cpu -= -(-shared.work // max(until, 1))
        for (_, node_cpu, node_memory, gpu_memory, gpu_free), (_, n) in self.empty.items():
            cpu += n * node_cpu
            memory += n * node_memory
            gpu += n * sum(gpu_free)
            gpus += n * len(gpu_memory)
        for i, load in enumerate(self.loads):
            needed = self.fewest(i, until, least[i], may_leave)
            if needed < 0:
                return False
            cpu -= needed * load.spec.cpu
            memory -= needed * load.spec.memory
            gpu -= needed * self.shares[i]
            halves += needed * -(-self.shares[i] // UNIT) if self.shares[i] * 2 > UNIT else 0
        if cpu < 0 or memory < 0 or gpu < 0 or halves > gpus:
            return False
        return not self.cheapest or self._could_by_kind(until)

    def _could_by_kind(self, until: int) -> bool:
        """The same where kinds of nodes differ: no step costs less than where it costs least."""
        spent = 0
        for load, seen, cost in zip(self.loads, self.seen, self.cheapest, strict=True):
            if not load.certain:
                continue
            time = until - min([load.setup_us, *(delay for delay, _, _ in seen)])
            if time <= 0 < load.tasks:
                return False
            spent += cost // (max(time, 1) * UNIT)
        return spent <= WHOLE

    def fewest(self, i: int, until: int, least: int, may_leave: bool) -> int:
        """The fewest workers with which a step could be done by then; -1 if there is no such number."""
        load = self.loads[i]
        if not load.certain:
            return max(least, 0 if may_leave and (load.blocked or until >= AT_LAST) else self.have[i])
        left = load.tasks
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
