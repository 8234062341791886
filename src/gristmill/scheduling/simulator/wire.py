"""Between driver and workers when messages come late, twice or never: what a backend owes to `scheduling.link`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.simulator.faults import Injector
from gristmill.scheduling.simulator.model import SECOND, Made, VirtualWorker

if TYPE_CHECKING:
    from gristmill.scheduling.simulator.world import World

_TO_WORKERS = (c.Dispatch, c.Resume, c.Cancel, c.StopWorker)


@dataclass(slots=True)
class Mailbox:
    """The link to one worker as seen from outside: what the driver must have taken in."""

    told: int = 0
    """Commands sent."""
    arrived: set[int] = field(default_factory=set)
    taken: int = 0
    made: dict[int, list[Made]] = field(default_factory=dict)
    """What the reports that are not taken in yet say was made."""


class Wire:
    """Carries the messages of a world, badly."""

    def __init__(self, world: World, injector: Injector) -> None:
        self.world, self.injector, self.faults = world, injector, injector.faults
        self.boxes: dict[int, Mailbox] = {}
        self.ended: dict[int, e.WorkerDied] = {}
        """Who is dead, or will never live, and how: told again whenever somebody wants it dead."""
        self.cut_off: dict[int, int] = {}
        """Workers that cannot be reached, and until when."""
        world.after(self._alive_us, self._signs_of_life)

    @property
    def _alive_us(self) -> int:
        return round(self.faults.alive_every_s * SECOND)

    def send(self, worker: int | None, what: Callable[[World], Any]) -> None:
        """Let a message to or from a worker, or about all, arrive: late, twice or never, and at no other driver."""
        chance, f = self.world.random, self.faults
        if (self.injector.active and chance.random() < f.lost) or self._is_cut_off(worker):
            return
        for _ in range(2 if chance.random() < f.duplicated else 1):
            late = chance.random() < f.late
            self.world.post(chance.randrange(round(f.late_s * SECOND) + 1) if late else chance.randrange(1000), what)

    def _is_cut_off(self, worker: int | None) -> bool:
        return worker is not None and self.cut_off.get(worker, 0) > self.world.now

    def carries(self, command: c.Command) -> bool:
        """Take a command for a worker, or for a node about one, on its way."""
        x: Any = command
        if isinstance(command, c.StartWorker):
            self.boxes[x.worker] = Mailbox()
            home = self.world.nodes[x.node]
            self.send(x.worker, lambda world: self._start(x) if world.nodes.get(x.node) is home else None)
        elif isinstance(command, c.KillWorker):
            self.send(x.worker, lambda world: self._kill(x.worker))
        elif isinstance(command, _TO_WORKERS):
            box = self.boxes[x.worker]
            box.told += 1
            number = box.told
            self.send(x.worker, lambda world: self._at_worker(x, number))
        else:
            return False
        return True

    def _start(self, x: c.StartWorker) -> None:
        if x.worker not in self.world.workers and x.worker not in self.ended:
            self.world.do(x)

    def _kill(self, worker: int) -> None:
        if worker in self.world.workers:
            self.world.die(worker, e.Death.KILLED)
            return
        died = self.ended.setdefault(worker, e.WorkerDied(worker, e.Death.KILLED))
        self.world.witness.is_gone(worker)
        self.send(worker, lambda world: died)

    def _at_worker(self, command: Any, number: int) -> None:
        w = self.world.workers.get(command.worker)
        if w is None:
            return
        if number > w.received:
            w.inbox[number] = command
        while w.received + 1 in w.inbox:
            w.received += 1
            self.world.do(w.inbox.pop(w.received))

    def report(self, worker: int, w: VirtualWorker, event: Any, made: list[Made]) -> None:
        """A worker says something. What it made is its own until that has been taken in."""
        w.sent += 1
        self.boxes[worker].made[w.sent] = made
        numbered = replace(event, seq=w.sent)
        self.send(worker, lambda world: numbered)

    def died(self, event: e.WorkerDied) -> None:
        """A node says that a worker is dead."""
        self.ended[event.worker] = event
        self.send(event.worker, lambda world: event)

    def left(self, worker: int) -> None:
        self.ended[worker] = e.WorkerDied(worker, e.Death.KILLED)

    def _signs_of_life(self, world: World) -> None:
        world.after(self._alive_us, self._signs_of_life)
        signs = [e.WorkerAlive(i, w.sent, w.received) for i, w in world.workers.items() if not self._is_cut_off(i)]
        if signs:
            self.send(None, lambda world: signs)

    def agrees(self, events: Sequence[e.Event]) -> None:
        """The scheduler has taken in what it must have, no more and no less."""
        for event in events:
            w = self.world.scheduler.state.workers.get(getattr(event, "worker", -1))
            if w is not None and w.link is not None:
                taken = self.boxes[w.id].taken
                assert w.link.taken == taken, f"{w.link.taken} reports of worker {w.id} taken in instead of {taken}"

    def taken(self, events: Sequence[e.Event]) -> list[Made]:
        """What the driver must take over from workers when it hears this."""
        found: list[Made] = []
        for event in events:
            number: int = getattr(event, "seq", 0)
            if not number:
                continue
            worker: int = getattr(event, "worker", -1)
            if worker not in self.world.scheduler.state.workers:
                continue
            box = self.boxes[worker]
            box.arrived.add(number)
            while box.taken + 1 in box.arrived:
                box.taken += 1
                found += box.made.pop(box.taken, ())
        return found
