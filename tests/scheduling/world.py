"""A small world in virtual time that does what the scheduler says, with seeded faults. No process, clock or sleep."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from models import SECOND, SOURCE_BYTES, Data, Job, StepModel, VirtualWorker, cpus

from gristmill.scheduling import Scheduler, SchedulerConfig, StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e


class World:
    """Runs `StepModel`s under a real `Scheduler` and checks all invariants after every ``check_every``-th event."""

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
        lag_us: int = 0,
        check_every: int = 1,
        scheduler: Scheduler | None = None,
    ) -> None:
        self.scheduler = scheduler or Scheduler(steps, config or SchedulerConfig(budget=1 << 30))
        self.specs, self.models = steps, models
        self.random = random.Random(seed)
        self.items = items
        self.lag_us = lag_us
        self.kill_every_us = kill_every_us
        self.check_every = check_every
        self.heap: list[tuple[int, int, Any]] = []
        self.seq = 0
        self.now = 0
        self.events = 0
        self.sources = source
        self.source_next = 0
        self.next_id = 0
        self.data: dict[int, Data] = {}
        self.workers: dict[int, VirtualWorker] = {}
        self.failed_once: set[tuple[int, str]] = set()
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
        for node in nodes or [cpus(4)]:
            self.after(0, node)
        self.after(0, e.SourceSized(source))
        if kill_every_us:
            self.after(kill_every_us, World.kill_one)
        self.after(SECOND, World.tick)

    def after(self, delay: int, what: e.Event | Callable[[World], Any]) -> None:
        """Let an event, or what a function of the world makes an event of, happen later."""
        self.seq += 1
        heapq.heappush(self.heap, (self.now + delay, self.seq, what))

    def run(self, until_us: int | None = None, limit_us: int = 10_000 * SECOND) -> World:
        """Go on to the end, or to a moment."""
        while not self.finished:
            assert self.heap, f"the world stands still: {self.scheduler.snapshot()}"
            if until_us is not None and self.heap[0][0] > until_us:
                break
            self.now, _, what = heapq.heappop(self.heap)
            assert self.now <= limit_us, f"it takes too long: {self.scheduler.snapshot()}"
            event = what(self) if callable(what) else what
            if event is not None:
                self.tell(event)
        if self.finished:
            self.scheduler.check()
        return self

    def tell(self, event: e.Event) -> None:
        self.events += 1
        for command in self.scheduler.handle(event, self.now):
            self.commands.append((self.now, command))
            getattr(self, "do_" + type(command).__name__)(command)
        self.max_bytes = max(self.max_bytes, self.scheduler.state.held + self.scheduler.state.reserved)
        if self.events % self.check_every == 0:
            self.scheduler.check()

    def all(self, kind: type) -> list[Any]:
        """The commands of a kind, in order."""
        return [command for _, command in self.commands if type(command) is kind]

    def expected(self) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
        """Labels and items that should be delivered, and source tasks and items that something bad keeps from it."""
        labels = [""]
        for model in self.models:
            if model.fan_out != 1:
                labels = [f"{x}.{i}" for x in labels for i in range(model.fan_out)]
        good, bad = set(), set()
        for root in map(str, range(self.sources)):
            for item in range(self.items):
                one = Data(root, (item,))
                if any(one.is_in(m.poison) or one.is_in(m.raises) or one.is_in(m.hangs) for m in self.models):
                    bad.add((root, item))
                else:
                    good |= {(root + x, item) for x in labels}
        return good, bad

    def assert_nothing_lost(self) -> None:
        """Every good item was delivered once, every bad one was quarantined, and nothing is left over."""
        assert self.finished and not self.aborted, self.aborted
        good, bad = self.expected()
        twice = [x for x, n in self.delivered.items() if n != 1]
        assert not twice, f"delivered more than once: {twice[:5]}"
        assert set(self.delivered) == good, f"lost or too much: {sorted(set(self.delivered) ^ good)[:5]}"
        blamed = {(d.root, item) for _, d in self.quarantined for item in d.items}
        assert blamed <= bad, f"innocents quarantined: {sorted(blamed - bad)[:5]}"
        if all(model.fan_out for model in self.models):
            assert blamed == bad, f"guilty ones not named: {sorted(bad - blamed)[:5]}"
        assert not self.data, f"data not released: {list(self.data.values())[:5]}"
        s = self.scheduler.state
        assert (s.held, s.reserved, len(s.tasks), len(s.workers)) == (0, 0, 0, 0)

    # What happens -----------------------------------------------------------------------------------------------

    def tick(self) -> e.Event:
        self.after(SECOND, World.tick)
        return e.Tick()

    def kill_one(self) -> None:
        self.after(self.kill_every_us, World.kill_one)
        alive = [i for i, w in self.workers.items() if not w.stopping]
        if alive:
            # Memory runs out only where several share it; a unit that the scheduler runs alone has enough.
            crowded = self.scheduler.state.running > 1 and self.random.random() < 0.5
            self.die(self.random.choice(alive), e.Death.OUT_OF_MEMORY if crowded else e.Death.KILLED)

    def lose(self, node: int) -> e.Event:
        for i in [i for i, w in self.workers.items() if w.node == node]:
            self.workers.pop(i).lost = True
        return e.NodeLost(node)

    def say(self, worker: int, w: VirtualWorker, what: e.Event | Callable[[World], Any]) -> None:
        """A worker reports; what it says arrives in order, but late."""
        w.heard_at = max(w.heard_at, self.now + (self.random.randrange(self.lag_us) if self.lag_us else 0))

        def arrive(world: World) -> Any:
            if w.lost:
                return None
            return what(world) if callable(what) else what

        self.after(w.heard_at - self.now, arrive)

    def die(self, worker: int, cause: e.Death) -> None:
        w = self.workers.pop(worker)
        setting_up = w.current is not None and self.needs_setup(w, w.current.step)
        running = w.current.key if w.current and not setting_up else None
        self.say(worker, w, e.WorkerDied(worker, cause, running, w.current.step if w.current and setting_up else None))

    def leave(self, worker: int) -> None:
        w = self.workers.pop(worker, None)
        if w is not None:
            self.say(worker, w, e.WorkerLeft(worker))

    def later(self, worker: int, delay: int, then: Callable[[int, VirtualWorker], None]) -> None:
        """Go on in a worker after a while, unless it has died, been stopped or been given something else meanwhile."""
        epoch = self.workers[worker].epoch

        def happen(world: World) -> None:
            w = world.workers.get(worker)
            if w is not None and w.epoch == epoch:
                then(worker, w)

        self.after(delay, happen)

    def up(self, worker: int, w: VirtualWorker) -> None:
        if w.step is not None and self.setup_fails(worker, w, w.step):
            self.leave(worker)
            return
        self.say(worker, w, e.WorkerReady(worker, 0 if w.step is None else self.models[w.step].setup_us))

    def setup_fails(self, worker: int, w: VirtualWorker, step: int) -> bool:
        model = self.models[step]
        if not model.failing_setups:
            return False
        model.failing_setups -= 1
        self.say(worker, w, e.SetupFailed(worker, step, "OSError: no weights"))
        return True

    def needs_setup(self, w: VirtualWorker, step: int) -> bool:
        return w.step is None and self.specs[step].has_setup and step not in w.hosts

    def go_on(self, worker: int, w: VirtualWorker) -> None:
        """Start the next unit of a worker, setting its step up first if need be."""
        if w.current is not None or not w.queue or w.stopping:
            return
        w.current = w.queue.pop(0)
        w.epoch += 1
        step = w.current.step
        if self.needs_setup(w, step):
            self.later(worker, self.models[step].setup_us, self.set_up)
        else:
            self.begin(worker, w)

    def set_up(self, worker: int, w: VirtualWorker) -> None:
        assert w.current is not None
        step = w.current.step
        if self.setup_fails(worker, w, step):
            w.queue = [job for job in w.queue if job.step != step]
            w.current = None
            self.go_on(worker, w)
            return
        w.hosts.add(step)
        self.say(worker, w, e.StepSetUp(worker, step, self.models[step].setup_us))
        self.begin(worker, w)

    def begin(self, worker: int, w: VirtualWorker) -> None:
        job = w.current
        assert job is not None
        model = self.models[job.step]
        if not any(d.is_in(model.hangs) for d in job.data):
            jitter = self.random.randrange(90, 111)
            self.later(worker, model.service_us * len(job.inputs) * jitter // 100, self.advance)

    def advance(self, worker: int, w: VirtualWorker) -> None:
        """The unit (or chunk) that a worker runs is over."""
        job = w.current
        assert job is not None
        model = self.models[job.step]
        busy = model.service_us * len(job.inputs)
        if any(d.is_in(model.poison) for d in job.data):
            self.die(worker, e.Death.CRASHED)
            return
        w.current = None
        flaky = {(job.step, d.root) for d in job.data if d.is_in(model.flaky)} - self.failed_once
        if flaky or any(d.is_in(model.raises) for d in job.data):
            self.failed_once |= flaky
            self.say(worker, w, e.UnitFailed(worker, job.key, "ValueError: bad", busy))
        else:
            made = [
                (d if model.fan_out == 1 else Data(f"{d.label}.{position}", d.items), x.task)
                for x, d in zip(job.inputs, job.data, strict=True)
                for position in range(x.skip, model.fan_out)
            ]
            end = job.produced + model.chunk if model.chunk else len(made)
            part = made[job.produced : end]
            kind: Any = e.UnitFinished
            if end < len(made):
                job.produced = end
                w.suspended[job.key] = job
                kind = e.UnitEmitted
            self.say(worker, w, lambda world: kind(worker, job.key, world.make(job.step, part), busy))
        self.go_on(worker, w)

    def make(self, step: int, outputs: list[tuple[Data, int]]) -> tuple[e.Output, ...]:
        made = []
        for data, parent in outputs:
            ident = self.next_id
            self.next_id += 1
            if step == len(self.models) - 1:
                self.delivered.update((data.label, item) for item in data.items)
                self.delivered_at.append(self.now)
            else:
                self.data[ident] = data
            n = len(data.items)
            made.append(e.Output(ident, self.models[step].out_bytes, n, parent, n > 1))
        return tuple(made)

    # What is done -----------------------------------------------------------------------------------------------

    def do_SetUpNode(self, x: c.SetUpNode) -> None:
        self.after(SECOND, e.NodeSetUp(x.node, x.step))

    def do_StartWorker(self, x: c.StartWorker) -> None:
        self.workers[x.worker] = VirtualWorker(x.node, x.step)
        self.later(x.worker, 1000 + (self.models[x.step].setup_us if x.step is not None else 0), self.up)

    def do_StopWorker(self, x: c.StopWorker) -> None:
        w = self.workers.get(x.worker)
        if w is None:
            return
        assert x.now or (not w.queue and w.current is None and not w.suspended), "stopped with work in hand"
        w.stopping = True
        w.epoch += 1
        self.later(x.worker, 1000, lambda worker, w: self.leave(worker))

    def do_KillWorker(self, x: c.KillWorker) -> None:
        if x.worker in self.workers:
            self.die(x.worker, e.Death.KILLED)

    def do_Dispatch(self, x: c.Dispatch) -> None:
        inputs = x.special or tuple(c.Input(t, t, 0, 0, 0) for t in x.tasks)
        whole = [self.data[i.data] for i in inputs]
        data = tuple(
            Data(d.label, d.items[i.start : i.stop]) if i.stop else d for i, d in zip(inputs, whole, strict=True)
        )
        w = self.workers.get(x.worker)
        if w is not None:
            w.queue.append(Job(x.tasks[0], x.step, inputs, data))
            self.go_on(x.worker, w)

    def do_Resume(self, x: c.Resume) -> None:
        w = self.workers.get(x.worker)
        if w is not None:
            w.queue.append(w.suspended.pop(x.unit))
            self.go_on(x.worker, w)

    def do_Cancel(self, x: c.Cancel) -> None:
        w = self.workers.get(x.worker)
        if w is not None:
            del w.suspended[x.unit]

    def do_Release(self, x: c.Release) -> None:
        for t in x.tasks:
            del self.data[t]

    def do_Quarantine(self, x: c.Quarantine) -> None:
        whole = self.data[x.data]
        self.quarantined.append((x.step, Data(whole.label, whole.items[x.start : x.stop]) if x.stop else whole))

    def do_Pull(self, x: c.Pull) -> None:
        n = min(x.count, self.sources - self.source_next)
        outputs = []
        for _ in range(n):
            self.data[self.next_id] = Data(str(self.source_next), tuple(range(self.items)))
            outputs.append(e.Output(self.next_id, SOURCE_BYTES, self.items, -1, self.items > 1))
            self.next_id += 1
            self.source_next += 1
        self.after(10, e.SourceGave(tuple(outputs)) if n else e.SourceEnded())

    def do_Abort(self, x: c.Abort) -> None:
        self.aborted = x.reason

    def do_Finish(self, x: c.Finish) -> None:
        self.finished = True
