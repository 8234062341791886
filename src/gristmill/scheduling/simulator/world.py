"""A cluster in virtual time that carries out the scheduler's commands. No process, clock or sleep."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.planning import solve
from gristmill.scheduling.scheduler import Scheduler
from gristmill.scheduling.simulator.cluster import Cluster
from gristmill.scheduling.simulator.faults import Faults, Injector
from gristmill.scheduling.simulator.losses import Losses
from gristmill.scheduling.simulator.model import SECOND, Conditions, Data, Made, StepModel, source_key

_PLAN_US = 2
"""Time to make a plan outside the loop, for each node and step."""


class World(Cluster):
    """Runs `StepModel`s under a real `Scheduler`."""

    def __init__(
        self,
        scheduler: Scheduler,
        models: Sequence[StepModel],
        source: int,
        nodes: Sequence[e.NodeJoined],
        conditions: Conditions,
        faults: Faults | None = None,
    ) -> None:
        super().__init__([step.spec for step in scheduler.state.steps], models, conditions)
        self.scheduler = scheduler
        self.events = 0
        self.sources = source
        self.source_next = 0
        self.finished = False
        self.aborted = ""
        self.straggling = faults is not None
        self.losing = faults is not None and faults.losable > 0
        self.losses = Losses(self, faults.losable if faults is not None else 0.0)
        self.injector = Injector(self, faults or Faults(), list(nodes))
        self.actions: dict[type, Callable[[Any], None]] = {
            c.SetUpNode: self.set_up_node,
            c.StartWorker: self.start_worker,
            c.StopWorker: self.stop_worker,
            c.KillWorker: self.kill_worker,
            c.LimitInFlight: self.limit_in_flight,
            c.ReturnWaiting: self.return_waiting,
            c.Dispatch: self.dispatch,
            c.Resume: self.resume,
            c.Cancel: self.cancel,
            c.Release: self.release,
            c.Quarantine: self.quarantine,
            c.Pull: self.pull,
            c.Solve: self.solve,
            c.Abort: self.abort,
            c.Finish: self.finish,
        }
        beginning = [*nodes, e.SourceSized(source)]
        self.after(0, lambda world: beginning)
        self.after(conditions.tick_us, World.tick)

    def run(self, until_us: int | None = None, limit_us: int = 10_000 * SECOND, limit: int = 1 << 60) -> Self:
        """Run to the end, or to a moment."""
        while not self.finished:
            assert self.heap, f"the world stands still: {self.scheduler.snapshot()}"
            if until_us is not None and self.heap[0][0] > until_us:
                break
            self.now, _, what = heapq.heappop(self.heap)
            assert self.now <= limit_us and self.events < limit, f"it takes too long: {self.scheduler.snapshot()}"
            event = what(self) if callable(what) else what
            if event is not None:
                self.deliver(event)
        return self

    def deliver(self, event: e.Event | list[e.Event]) -> None:
        """Pass an event to the scheduler and carry out its commands."""
        self.events += 1
        events = event if isinstance(event, list) else [event]
        for x in events:
            if type(x) is e.NodeJoined and x.node not in self.nodes:
                self.nodes[x.node] = replace(x)  # a new one if a node of this number was lost
        for command in self.handle(events):
            self.carry_out(command)

    def handle(self, events: Sequence[e.Event]) -> list[c.Command]:
        made, self.arriving = self.arriving, []
        commands = self.scheduler.handle(events[0] if len(events) == 1 else events, self.now)
        for x in made:
            self.accept(x)
        return commands

    def carry_out(self, command: c.Command) -> None:
        self.actions[type(command)](command)

    def accept(self, made: Made) -> None:
        """Store tasks that the scheduler now knows; outputs of the last step are delivered instead."""
        if made.step < len(self.models) - 1:
            self.data.update(made.tasks)

    def source_data(self, number: int) -> Data:
        return Data(str(number), tuple(range(self.conditions.items)), source_key(self.conditions.seed, number))

    def tick(self) -> e.Event:
        self.after(self.conditions.tick_us, World.tick)
        return e.Tick()

    def release(self, x: c.Release) -> None:
        for t in x.tasks:
            del self.data[t]
            self.losses.released(t)

    def quarantine(self, x: c.Quarantine) -> None:
        """Do nothing: the data stays in the store until the scheduler releases it."""

    def pull(self, x: c.Pull) -> None:
        n = min(x.count, self.sources - self.source_next)
        first, self.source_next = self.source_next, self.source_next + n
        tasks = tuple([(self.next_id + i, self.source_data(first + i)) for i in range(n)])
        self.next_id += n
        size, items = self.conditions.source_bytes, self.conditions.items

        def gave(world: World) -> e.Event:
            if not n:
                return e.SourceEnded()
            world.arriving.append(Made(-1, tasks))
            return e.SourceGave(tuple([e.Output(i, size, items, -1, items > 1) for i, _ in tasks]))

        self.after(10, gave)

    def solve(self, x: c.Solve) -> None:
        plan = solve(x.problem)
        self.after(_PLAN_US * len(x.problem.sites) * len(x.problem.demands), e.Solved(x.number, plan))

    def abort(self, x: c.Abort) -> None:
        self.aborted = x.reason

    def finish(self, x: c.Finish) -> None:
        self.finished = True
