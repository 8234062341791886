"""A cluster in virtual time that does what the scheduler says, with seeded chance. No process, clock or sleep."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.planning import solve
from gristmill.scheduling.scheduler import Scheduler
from gristmill.scheduling.settings import SchedulerConfig, StepSpec
from gristmill.scheduling.simulator.back_and_forth import BackAndForth
from gristmill.scheduling.simulator.cluster import Cluster, part
from gristmill.scheduling.simulator.faults import Faults, Injector
from gristmill.scheduling.simulator.losses import Losses
from gristmill.scheduling.simulator.model import SECOND, SOURCE_BYTES, Data, Made, StepModel, cpus
from gristmill.scheduling.simulator.truth import source_key
from gristmill.scheduling.simulator.verdict import assert_nothing_lost
from gristmill.scheduling.simulator.witness import Witness

_PLAN_US = 2
"""What a plan takes for each node and step, when it is made beside the loop."""


class World(Cluster):
    """Runs `StepModel`s under a real `Scheduler` and checks all invariants after every ``check_every``-th event.

    What only an onlooker can see (`Witness`) is checked all the time, unless ``check_every`` is 0.
    """

    def __init__(
        self,
        steps: Sequence[StepSpec],
        models: Sequence[StepModel],
        source: int,
        *,
        config: SchedulerConfig | None = None,
        nodes: Sequence[e.NodeJoined] | None = None,
        seed: int = 0,
        kill_every_us: int = 0,
        items: int = 1,
        lag_us: int = 0,
        start_us: int = 1000,
        leave_us: int | None = None,
        tick_us: int = SECOND,
        source_bytes: int = SOURCE_BYTES,
        check_every: int = 1,
        keep: bool = True,
        scheduler: Scheduler | None = None,
        faults: Faults | None = None,
    ) -> None:
        super().__init__(steps, models, seed, lag_us, start_us, leave_us, check_every > 0)
        config = config or SchedulerConfig(budget=1 << 30)
        self.scheduler = Scheduler(steps, config) if scheduler is None else scheduler
        self.items = items
        self.tick_us = tick_us
        self.source_bytes = source_bytes
        self.kill_every_us = kill_every_us
        self.check_every = check_every
        self.keep = keep
        """Remember commands and deliveries; a long simulation does not."""
        self.events = 0
        self.sources = source
        self.source_next = 0
        self.delivered: Counter[tuple[str, int]] = Counter()
        """By label and item."""
        self.delivered_at: list[int] = []
        self.quarantined: list[tuple[int, Data]] = []
        """(step, what)"""
        self.commands: list[tuple[int, c.Command]] = []
        self.max_bytes = 0
        """The most that was held and promised at one time."""
        self.finished = False
        self.aborted = ""
        self.straggling = faults is not None
        self.losing = faults is not None and faults.losable > 0
        self.witness = Witness(self)
        self.back_and_forth = BackAndForth()
        self.losses = Losses(self, faults.losable if faults is not None else 0.0)
        self.injector = Injector(self, faults or Faults(), list(nodes or ()))
        beginning = [*(nodes or [cpus(4)]), e.SourceSized(source)]
        self.after(0, lambda world: beginning)
        if kill_every_us:
            self.after(kill_every_us, World.kill_one)
        self.after(tick_us, World.tick)

    def run(self, until_us: int | None = None, limit_us: int = 10_000 * SECOND, limit: int = 1 << 60) -> World:
        """Go on to the end, or to a moment."""
        while not self.finished:
            assert self.heap, f"the world stands still: {self.scheduler.snapshot()}"
            if until_us is not None and self.heap[0][0] > until_us:
                break
            self.now, _, what = heapq.heappop(self.heap)
            assert self.now <= limit_us and self.events < limit, f"it takes too long: {self.scheduler.snapshot()}"
            event = what(self) if callable(what) else what
            if event is not None:
                self.tell(event)
        if self.finished:
            self.scheduler.check()
        return self

    def tell(self, event: e.Event | list[e.Event]) -> None:
        """Pass an event to the driver and carry out the commands that follow."""
        self.events += 1
        events = event if isinstance(event, list) else [event]
        for x in events:
            if type(x) is e.NodeJoined and x.node not in self.nodes:
                self.nodes[x.node] = replace(x)  # another one, if it was here before
        for command in self.hear(events):
            if self.keep:
                self.commands.append((self.now, command))
            self.carry_out(command)
        s = self.scheduler.state
        self.max_bytes = max(self.max_bytes, s.held + s.reserved)
        if self.watched:
            self.scheduler.check_progress()
            self.back_and_forth.check(s)
        if self.check_every and self.events % self.check_every == 0:
            self.scheduler.check()
            if self.losing:
                self.losses.agrees()

    def hear(self, events: Sequence[e.Event]) -> list[c.Command]:
        made, self.arriving = self.arriving, []
        commands = self.scheduler.handle(events[0] if len(events) == 1 else events, self.now)
        for x in made:
            self.accept(x)
        if self.watched:
            self.witness.hears(events, commands)
        return commands

    def carry_out(self, command: c.Command) -> None:
        if self.watched and isinstance(command, c.StartWorker):
            self.witness.starts(command)
        _DO[type(command)](self, command)

    def accept(self, made: Made) -> None:
        """The scheduler has heard of these tasks: they are in the store, or delivered."""
        if made.step < len(self.models) - 1:
            self.data.update(made.tasks)
            return
        if self.keep:
            for _, data in made.tasks:
                self.delivered.update((data.label, item) for item in data.items)
                self.delivered_at.append(self.now)

    def all(self, kind: type) -> list[Any]:
        """The commands of a kind, in order."""
        return [command for _, command in self.commands if type(command) is kind]

    def source_data(self, number: int) -> Data:
        return Data(str(number), tuple(range(self.items)), source_key(self.seed, number))

    def assert_nothing_lost(self) -> None:
        """Every good item was delivered once, every bad one was quarantined, and nothing is left over."""
        assert_nothing_lost(self)

    def tick(self) -> e.Event:
        self.after(self.tick_us, World.tick)
        return e.Tick()

    def kill_one(self) -> None:
        self.after(self.kill_every_us, World.kill_one)
        alive = [i for i, w in self.workers.items() if not w.stopping]
        if alive:
            # Memory runs out only where several share it; a unit that the scheduler runs alone has enough.
            crowded = self.scheduler.state.running > 1 and self.random.random() < 0.5
            self.die(self.random.choice(alive), e.Death.OUT_OF_MEMORY if crowded else e.Death.KILLED)

    def release(self, x: c.Release) -> None:
        for t in x.tasks:
            del self.data[t]
            self.losses.released(t)

    def quarantine(self, x: c.Quarantine) -> None:
        self.quarantined.append((x.step, part(self.data[x.data], x.start, x.stop)))

    def pull(self, x: c.Pull) -> None:
        n = min(x.count, self.sources - self.source_next)
        first, self.source_next = self.source_next, self.source_next + n
        tasks = tuple([(self.next_id + i, self.source_data(first + i)) for i in range(n)])
        self.next_id += n

        def gave(world: World) -> e.Event:
            if not n:
                return e.SourceEnded()
            world.arriving.append(Made(-1, tasks))
            return e.SourceGave(
                tuple([e.Output(i, world.source_bytes, world.items, -1, world.items > 1) for i, _ in tasks])
            )

        self.after(10, gave)

    def solve(self, x: c.Solve) -> None:
        plan = solve(x.problem)
        self.after(_PLAN_US * len(x.problem.sites) * len(x.problem.loads), e.Solved(x.number, plan))

    def abort(self, x: c.Abort) -> None:
        self.aborted = x.reason

    def finish(self, x: c.Finish) -> None:
        self.finished = True


_DO: dict[type, Callable[[World, Any], None]] = {
    c.SetUpNode: World.set_up_node,
    c.StartWorker: World.start_worker,
    c.StopWorker: World.stop_worker,
    c.KillWorker: World.kill_worker,
    c.Dispatch: World.dispatch,
    c.Resume: World.resume,
    c.Cancel: World.cancel,
    c.Release: World.release,
    c.Quarantine: World.quarantine,
    c.Pull: World.pull,
    c.Solve: lambda world, x: world.solve(x),
    c.Abort: World.abort,
    c.Finish: World.finish,
}
