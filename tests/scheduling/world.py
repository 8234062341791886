"""A small world in virtual time that does what the scheduler says, with seeded faults. No process, clock or sleep."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gristmill.scheduling import Scheduler, SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e

SECOND = 1_000_000


@dataclass
class StepModel:
    """How a step behaves: microseconds per task, outputs per task, bytes of an output, setup time."""

    service_us: int = SECOND
    fan_out: int = 1
    out_bytes: int = 1000
    setup_us: int = 0
    chunk: int = 0
    """Outputs per chunk when it is a generator; 0: not one."""
    poison: frozenset[str] = frozenset()
    """Names of source tasks (or items of them) that kill the worker here."""
    raises: frozenset[str] = frozenset()


@dataclass
class VirtualWorker:
    step: int | None
    queue: list[Any] = field(default_factory=list)
    ready_at: int = 0
    current: Any = None
    epoch: int = 0
    stop: bool = False
    hosts: set[int] = field(default_factory=set)


class World:
    """Runs a pipeline of `StepModel`s under a real `Scheduler`, checking all invariants after every event."""

    def __init__(
        self,
        steps: list[StepSpec],
        models: list[StepModel],
        source: int,
        *,
        config: SchedulerConfig | None = None,
        nodes: list[e.NodeJoined] | None = None,
        seed: int = 0,
        kill_every_us: int = 0,
        items: int = 1,
        checks: bool = True,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.scheduler = scheduler or Scheduler(steps, config or SchedulerConfig(budget=1 << 30))
        self.specs, self.models = steps, models
        self.random = random.Random(seed)
        self.heap: list[tuple[int, int, Any]] = []
        self.seq = 0
        self.now = 0
        self.source_left = source
        self.source_next = 0
        self.next_id = 0
        self.names: dict[int, str] = {}
        self.workers: dict[int, VirtualWorker] = {}
        self.delivered: Counter[str] = Counter()
        self.delivered_at: list[int] = []
        self.quarantined: list[tuple[str, int, int]] = []
        self.started: Counter[int | None] = Counter()
        self.node_setups: Counter[tuple[int, int]] = Counter()
        self.finished = False
        self.aborted = ""
        self.kill_every_us = kill_every_us
        self.checks = checks
        self.items = items
        self.max_held = 0
        for node in nodes or [e.NodeJoined(0, 4 * SECOND, 1 << 34)]:
            self.after(0, node)
        self.after(0, e.SourceSized(source))
        if kill_every_us:
            self.after(kill_every_us, "kill")
        self.after(SECOND, "tick")

    def after(self, delay: int, what: Any) -> None:
        self.seq += 1
        heapq.heappush(self.heap, (self.now + delay, self.seq, what))

    def run(self, limit_us: int = 10_000 * SECOND) -> World:
        while not self.finished:
            assert self.heap, "the world stands still: " + str(self.scheduler.snapshot())
            self.now, _, what = heapq.heappop(self.heap)
            assert self.now <= limit_us, "it takes too long: " + str(self.scheduler.snapshot())
            event = self.happen(what)
            if event is not None:
                self.do(self.scheduler.handle(event, self.now))
                self.max_held = max(self.max_held, self.scheduler.state.held)
                if self.checks:
                    self.scheduler.check()
        return self

    # What happens -----------------------------------------------------------------------------------------------

    def happen(self, what: Any) -> Any:
        if what == "tick":
            self.after(SECOND, "tick")
            return e.Tick()
        if what == "kill":
            self.after(self.kill_every_us, "kill")
            busy = [i for i, w in self.workers.items() if not w.stop]
            return self.die(self.random.choice(busy), e.Death.KILLED) if busy else None
        if isinstance(what, tuple) and what[0] == "step":
            return self.advance(*what[1:])
        if isinstance(what, tuple) and what[0] == "ready":
            return self.ready(*what[1:])
        return what

    def die(self, worker: int, cause: e.Death) -> e.WorkerDied:
        w = self.workers.pop(worker)
        running = w.current[0] if w.current else None
        return e.WorkerDied(worker, cause, running)

    def ready(self, worker: int) -> Any:
        w = self.workers.get(worker)
        if w is None:
            return None
        if w.stop:
            del self.workers[worker]
            return e.WorkerLeft(worker)
        w.ready_at = self.now
        setup = self.models[w.step].setup_us if w.step is not None else 0
        return e.WorkerReady(worker, setup)

    def advance(self, worker: int, epoch: int) -> Any:
        """The unit (or chunk) that a worker runs is over."""
        w = self.workers.get(worker)
        if w is None or w.epoch != epoch:
            return None
        key, step, inputs, produced = w.current
        model = self.models[step]
        service = model.service_us * len(inputs)
        names = [self.name_of(x) for x in inputs]
        if any(self.is_in(n, x, model.poison) for n, x in zip(names, inputs, strict=True)):
            return self.die(worker, e.Death.CRASHED)
        if any(self.is_in(n, x, model.raises) for n, x in zip(names, inputs, strict=True)):
            w.current = None
            self.start_next(worker)
            return e.UnitFailed(worker, key, "ValueError: bad", service)
        outputs = []
        for x, name in zip(inputs, names, strict=True):
            items = max(1, (x.stop or self.items) - x.start)
            for position in range(model.fan_out):
                if position < x.skip:
                    continue
                part = f"[{x.start}:{x.stop}]" if x.stop else ""
                own = name + part if model.fan_out == 1 else f"{name}{part}.{position}"
                outputs.append((own, x.task, items))
        chunk = model.chunk
        if chunk and produced + chunk < len(outputs):
            mine = outputs[produced : produced + chunk]
            w.current = None
            self.suspended[(worker, key)] = (key, step, inputs, produced + chunk)
            self.start_next(worker)
            return e.UnitEmitted(worker, key, self.make(step, mine), service)
        mine = outputs[produced:]
        w.current = None
        self.start_next(worker)
        return e.UnitFinished(worker, key, self.make(step, mine), service)

    @property
    def suspended(self) -> dict[tuple[int, int], Any]:
        if not hasattr(self, "_suspended"):
            self._suspended: dict[tuple[int, int], Any] = {}
        return self._suspended

    def is_in(self, name: str, x: c.Input, bad: frozenset[str]) -> bool:
        root = name.split(".")[0].split("[")[0]
        if root in bad:
            return True
        return any(f"{root}#{i}" in bad for i in range(x.start, x.stop or self.items))

    def name_of(self, x: c.Input) -> str:
        return self.names[x.data]

    def make(self, step: int, outputs: list[tuple[str, int, int]]) -> tuple[e.Output, ...]:
        made = []
        for name, parent, items in outputs:
            ident = self.next_id
            self.next_id += 1
            if step == len(self.models) - 1:
                self.delivered[name] += 1
                self.delivered_at.append(self.now)
            else:
                self.names[ident] = name
            made.append(e.Output(ident, self.models[step].out_bytes, items, parent, items > 1))
        return tuple(made)

    # What is done -----------------------------------------------------------------------------------------------

    def do(self, commands: list[Any]) -> None:
        for command in commands:
            getattr(self, "do_" + type(command).__name__)(command)

    def do_SetUpNode(self, x: c.SetUpNode) -> None:
        self.node_setups[(x.node, x.step)] += 1
        self.after(SECOND, e.NodeSetUp(x.node, x.step))

    def do_StartWorker(self, x: c.StartWorker) -> None:
        self.workers[x.worker] = VirtualWorker(x.step)
        self.started[x.step] += 1
        self.after(1000 + (self.models[x.step].setup_us if x.step is not None else 0), ("ready", x.worker))

    def do_StopWorker(self, x: c.StopWorker) -> None:
        w = self.workers.get(x.worker)
        if w is None:
            return
        assert x.now or (not w.queue and w.current is None), "stopped with work in hand"
        w.stop = True
        w.epoch += 1
        if w.ready_at or x.now:
            self.after(1000, ("ready", x.worker))

    def do_KillWorker(self, x: c.KillWorker) -> None:
        if x.worker in self.workers:
            self.after(1000, self.die(x.worker, e.Death.KILLED))

    def do_Dispatch(self, x: c.Dispatch) -> None:
        inputs = x.special or tuple(c.Input(t, t, 0, 0, 0) for t in x.tasks)
        assert all(i.data in self.names for i in inputs), "dispatched without its data"
        self.workers[x.worker].queue.append((x.tasks[0], x.step, inputs, 0))
        self.start_next(x.worker)

    def do_Resume(self, x: c.Resume) -> None:
        self.workers[x.worker].queue.append(self.suspended.pop((x.worker, x.unit)))
        self.start_next(x.worker)

    def do_Cancel(self, x: c.Cancel) -> None:
        self.suspended.pop((x.worker, x.unit))

    def start_next(self, worker: int) -> None:
        w = self.workers[worker]
        if w.current is None and w.queue:
            w.current = w.queue.pop(0)
            w.epoch += 1
            model = self.models[w.current[1]]
            jitter = self.random.randrange(90, 111)
            if self.specs[w.current[1]].has_setup and w.step is None and w.current[1] not in w.hosts:
                w.hosts.add(w.current[1])
                self.after(1, e.StepSetUp(worker, w.current[1], model.setup_us))
            self.after(model.service_us * len(w.current[2]) * jitter // 100, ("step", worker, w.epoch))

    def do_Release(self, x: c.Release) -> None:
        for t in x.tasks:
            del self.names[t]

    def do_Quarantine(self, x: c.Quarantine) -> None:
        self.quarantined.append((self.names[x.data], x.start, x.stop))

    def do_Pull(self, x: c.Pull) -> None:
        n = min(x.count, self.source_left)
        if n == 0:
            self.after(10, e.SourceEnded())
            return
        self.source_left -= n
        outputs = []
        for _ in range(n):
            self.names[self.next_id] = str(self.source_next)
            outputs.append(e.Output(self.next_id, 1000, self.items, -1, self.items > 1))
            self.next_id += 1
            self.source_next += 1
        self.after(10, e.SourceGave(tuple(outputs)))

    def do_Abort(self, x: c.Abort) -> None:
        self.aborted = x.reason

    def do_Finish(self, x: c.Finish) -> None:
        self.finished = True
