"""Feed a scheduler event by event, with all invariants checked after each."""

from __future__ import annotations

from typing import Any

from tests.simulation.invariants import check

from gristmill.scheduling import Scheduler, SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.simulator.model import cpus


class Script:
    """A scheduler and its commands. Time advances by one microsecond an event unless stated otherwise."""

    def __init__(
        self,
        *steps: StepSpec,
        nodes: tuple[e.NodeJoined, ...] = (cpus(1),),
        budget: int = 1 << 30,
        **config: Any,
    ) -> None:
        self.scheduler = Scheduler(steps, SchedulerConfig(budget=budget, **config))
        self.state = self.scheduler.state
        self.now = 0
        self.next_id = 0
        self.said: list[c.Command] = []
        """All commands so far."""
        self.tell(*nodes)

    def tell(self, *events: e.Event, after: int = 1) -> list[Any]:
        """Return the commands that follow each of these events in turn."""
        answer: list[c.Command] = []
        for event in events:
            self.now += after
            answer += self.scheduler.handle(event, self.now)
            check(self.state)
        self.said += answer
        return answer

    def all(self, kind: type) -> list[Any]:
        return [x for x in self.said if type(x) is kind]

    def outputs(
        self, n: int, size: int = 100, items: int = 1, parent: int = -1, losable: bool = False
    ) -> tuple[e.Output, ...]:
        self.next_id += n
        ids = range(self.next_id - n, self.next_id)
        return tuple(e.Output(i, size, items, parent, items > 1, losable) for i in ids)

    def give(self, n: int, size: int = 100, items: int = 1) -> list[Any]:
        """The source gives tasks."""
        return self.tell(e.SourceGave(self.outputs(n, size, items)))

    def start(self) -> list[int]:
        """All workers that were asked for and are not up come up."""
        up = [x.worker for x in self.all(c.StartWorker) if x.worker in self.state.workers]
        up = [w for w in up if self.state.workers[w].state == 0]
        self.tell(*(e.WorkerReady(w) for w in up))
        return up

    def running(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """(worker, step, tasks) of all that is in workers."""
        return [(w.id, u.step, tuple(t.id for t in u.tasks)) for w in self.state.workers.values() for u in w.assigned]

    def unit(self, step: int | None = None) -> tuple[int, int]:
        """(worker, unit) of the first unit that runs, of a step if one is named."""
        return next((w, tasks[0]) for w, i, tasks in self.running() if step is None or i == step)

    def finish(
        self, step: int | None = None, n: int = 1, size: int = 100, busy_us: int = 1000, losable: bool = False
    ) -> list[Any]:
        """The first unit that runs (of a step) finishes with so many outputs."""
        worker, unit = self.unit(step)
        outputs = self.outputs(n, size, parent=unit, losable=losable)
        return self.tell(e.UnitFinished(worker, unit, outputs, busy_us))

    def fail(self, step: int | None = None) -> list[Any]:
        worker, unit = self.unit(step)
        return self.tell(e.UnitFailed(worker, unit, "ValueError: bad"))

    def die(self, cause: e.Death = e.Death.CRASHED, step: int | None = None) -> list[Any]:
        """The worker of the first unit that runs (of a step) dies while running it."""
        worker, unit = self.unit(step)
        return self.tell(e.WorkerDied(worker, cause, unit))

    def to_the_end(self) -> None:
        """Finish all units and obey all commands until the run ends."""
        for _ in range(10_000):
            if self.state.ending.finished:
                return
            stopping = [w.id for w in self.state.workers.values() if w.state == 3]
            if self.start():
                continue
            if stopping:
                self.tell(*(e.WorkerLeft(w) for w in stopping))
            elif self.running():
                rebuild = self.state.lost.rebuilds.get(self.unit()[1])
                self.finish(n=len(rebuild.rebuild.asked) if rebuild is not None and rebuild.rebuild else 1)
            else:
                self.tell(e.SourceEnded() if self.state.source.pulling else e.Tick())
        raise AssertionError(f"it does not end: {self.scheduler.snapshot()}")
