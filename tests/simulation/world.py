"""A virtual cluster that checks the scheduler while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.scheduler import Scheduler
from gristmill.scheduling.settings import SchedulerConfig, StepSpec
from gristmill.scheduling.simulator.cluster import part
from gristmill.scheduling.simulator.faults import Faults
from gristmill.scheduling.simulator.model import Conditions, Data, Job, Made, StepModel, VirtualWorker, cpus
from gristmill.scheduling.simulator.world import World
from tests.simulation.back_and_forth import BackAndForth
from tests.simulation.in_flight_witness import InFlightWitness
from tests.simulation.invariants import check, check_progress
from tests.simulation.lost_data_invariants import in_use
from tests.simulation.verdict import assert_nothing_lost
from tests.simulation.witness import Witness


class CheckedWorld(World):
    """A world that checks the scheduler's invariants after every ``check_every``-th event.

    What only an observer can see (`Witness`), and that the balancer does not undo its own decisions (`BackAndForth`),
    is checked after every event. Commands, deliveries and quarantined tasks are recorded.
    """

    def __init__(
        self,
        steps: Sequence[StepSpec],
        models: Sequence[StepModel],
        source: int,
        *,
        config: SchedulerConfig | None = None,
        nodes: Sequence[e.NodeJoined] | None = None,
        check_every: int = 1,
        kill_every_us: int = 0,
        faults: Faults | None = None,
        **conditions: Any,
    ) -> None:
        scheduler = Scheduler(steps, config or SchedulerConfig(budget=1 << 30))
        super().__init__(scheduler, models, source, nodes or [cpus(4)], Conditions(**conditions), faults)
        self.check_every = check_every
        self.commands: list[tuple[int, c.Command]] = []
        self.delivered: Counter[tuple[str, int]] = Counter()
        """By label and item."""
        self.delivered_at: list[int] = []
        self.quarantined: list[tuple[int, Data]] = []
        """(step, what)"""
        self.max_bytes = 0
        """The most bytes that were held and reserved at one time."""
        self.witness = Witness(self)
        self.in_flight = InFlightWitness(self)
        self.back_and_forth = BackAndForth()
        self.kill_every_us = kill_every_us
        if kill_every_us:
            self.after(kill_every_us, CheckedWorld.kill_one)

    def deliver(self, event: e.Event | list[e.Event]) -> None:
        super().deliver(event)
        s = self.scheduler.state
        self.max_bytes = max(self.max_bytes, s.budget.used)
        check_progress(s)
        self.back_and_forth.check(s)
        if self.finished or self.events % self.check_every == 0:
            check(s)
            if self.losing:
                unknown = in_use(s) - self.data.keys()
                assert not unknown, f"released and yet in use: data {sorted(unknown)[:5]}"

    def handle(self, events: Sequence[e.Event]) -> list[c.Command]:
        commands = super().handle(events)
        self.witness.hears(events, commands)
        self.in_flight.after(events, commands)
        return commands

    def carry_out(self, command: c.Command) -> None:
        self.commands.append((self.now, command))
        if isinstance(command, c.StartWorker):
            self.witness.starts(command)
        super().carry_out(command)

    def take_up(self, worker: int, w: VirtualWorker, job: Job) -> None:
        self.witness.begins(worker, w, job)
        if w.limit:
            self.in_flight.begins(worker, w, job)
        super().take_up(worker, w, job)

    def remove(self, worker: int) -> VirtualWorker:
        self.witness.is_gone(worker)
        self.in_flight.dies(worker, self.workers[worker])
        return super().remove(worker)

    def accept(self, made: Made) -> None:
        super().accept(made)
        if made.step == len(self.models) - 1:
            for _, data in made.tasks:
                self.delivered.update((data.label, item) for item in data.items)
                self.delivered_at.append(self.now)

    def quarantine(self, x: c.Quarantine) -> None:
        self.quarantined.append((x.step, part(self.data[x.data], x.start, x.stop)))

    def kill_one(self) -> None:
        self.after(self.kill_every_us, CheckedWorld.kill_one)
        alive = [i for i, w in self.workers.items() if not w.stopping]
        if alive:
            # Memory runs out only where several share it; a unit that the scheduler runs alone has enough.
            crowded = self.scheduler.state.running > 1 and self.random.random() < 0.5
            self.die(self.random.choice(alive), e.Death.OUT_OF_MEMORY if crowded else e.Death.KILLED)

    def all(self, kind: type) -> list[Any]:
        """The commands of a kind, in order."""
        return [command for _, command in self.commands if type(command) is kind]

    def assert_nothing_lost(self, interrupted: bool = False) -> None:
        """Every good item was delivered once, every bad one was quarantined, and nothing is left over."""
        assert_nothing_lost(self, interrupted)
