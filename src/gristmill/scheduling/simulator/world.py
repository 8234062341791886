"""A cluster in virtual time that does what the scheduler says, with seeded chance. No process, clock or sleep."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.config import SchedulerConfig, StepSpec
from gristmill.scheduling.planning import solve
from gristmill.scheduling.scheduler import Scheduler
from gristmill.scheduling.simulator.chance import mix
from gristmill.scheduling.simulator.model import (
    SECOND,
    SOURCE_BYTES,
    Data,
    Job,
    StepModel,
    VirtualWorker,
    cpus,
)
from gristmill.scheduling.simulator.truth import outputs_of, service_key, source_key

_PLAN_US = 2
"""What a plan takes for each node and step, when it is made beside the loop."""


class World:
    """Runs `StepModel`s under a real `Scheduler` and checks all invariants after every ``check_every``-th event."""

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
    ) -> None:
        self.scheduler = scheduler or Scheduler(steps, config or SchedulerConfig(budget=1 << 30))
        self.specs, self.models = steps, models
        self.random = random.Random(seed)
        self.seed = seed
        self.items = items
        self.lag_us = lag_us
        self.start_us = start_us
        self.leave_us = start_us if leave_us is None else leave_us
        self.tick_us = tick_us
        self.source_bytes = source_bytes
        self.kill_every_us = kill_every_us
        self.check_every = check_every
        self.keep = keep
        """Remember commands and deliveries; a long simulation does not."""
        self.heap: list[tuple[int, int, Any]] = []
        self.seq = 0
        self.now = 0
        self.events = 0
        self.sources = source
        self.source_next = 0
        self.next_id = 0
        self.kinds: dict[int, str] = {}
        self.data: dict[int, Data] = {}
        self.workers: dict[int, VirtualWorker] = {}
        self.failed_once: set[tuple[int, str]] = set()
        self.delivered: Counter[tuple[str, int]] = Counter()
        """By label and item."""
        self.delivered_at: list[int] = []
        self.last_done = 0
        self.quarantined: list[tuple[int, Data]] = []
        """(step, what)"""
        self.commands: list[tuple[int, c.Command]] = []
        self.max_bytes = 0
        """The most that was held and promised at one time."""
        self.work_lost_us = 0
        """Time that workers had spent on units which were then taken from them."""
        self.finished = False
        self.aborted = ""
        for node in nodes or [cpus(4)]:
            self.after(0, node)
        self.after(0, e.SourceSized(source))
        if kill_every_us:
            self.after(kill_every_us, World.kill_one)
        self.after(tick_us, World.tick)

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
        if type(event) is e.NodeJoined:
            self.kinds[event.node] = event.kind
        for command in self.scheduler.handle(event, self.now):
            if self.keep:
                self.commands.append((self.now, command))
            _DO[type(command)](self, command)
        s = self.scheduler.state
        self.max_bytes = max(self.max_bytes, s.held + s.reserved)
        if self.check_every and self.events % self.check_every == 0:
            self.scheduler.check()

    def all(self, kind: type) -> list[Any]:
        """The commands of a kind, in order."""
        return [command for _, command in self.commands if type(command) is kind]

    def expected(self) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
        """Labels and items that should be delivered, and source tasks and items that something bad keeps from it."""
        good, bad = set(), set()
        for number in range(self.sources):
            whole = self.source_data(number)
            for item in whole.items:
                one = Data(whole.label, (item,), whole.key)
                if any(one.is_in(m.poison) or one.is_in(m.raises) or one.is_in(m.hangs) for m in self.models):
                    bad.add((whole.label, item))
                else:
                    good |= {(label, item) for label in self.labels(whole)}
        return good, bad

    def labels(self, source: Data) -> list[str]:
        """What becomes of a source task in the end."""
        found = [source]
        for step in range(len(self.models)):
            found = [out for d in found for out in self.outputs_of(step, d)]
        return [d.label for d in found]

    def outputs_of(self, step: int, d: Data) -> list[Data]:
        return outputs_of(self.models[step], step, d)

    def source_data(self, number: int) -> Data:
        return Data(str(number), tuple(range(self.items)), source_key(self.seed, number))

    def assert_nothing_lost(self) -> None:
        """Every good item was delivered once, every bad one was quarantined, and nothing is left over."""
        assert self.finished and not self.aborted, self.aborted
        good, bad = self.expected()
        twice = [x for x, n in self.delivered.items() if n != 1]
        assert not twice, f"delivered more than once: {twice[:5]}"
        assert set(self.delivered) == good, f"lost or too much: {sorted(set(self.delivered) ^ good)[:5]}"
        blamed = {(d.root, item) for _, d in self.quarantined for item in d.items}
        assert blamed <= bad, f"innocents quarantined: {sorted(blamed - bad)[:5]}"
        if all(model.fan_out >= 1 for model in self.models):
            assert blamed == bad, f"guilty ones not named: {sorted(bad - blamed)[:5]}"
        assert not self.data, f"data not released: {list(self.data.values())[:5]}"
        s = self.scheduler.state
        assert (s.held, s.reserved, len(s.tasks), len(s.workers)) == (0, 0, 0, 0)

    # What happens -----------------------------------------------------------------------------------------------

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

    def lose(self, node: int) -> e.Event:
        for i in [i for i, w in self.workers.items() if w.node == node]:
            w = self.workers.pop(i)
            w.lost = True
            self.lose_work(w)
        return e.NodeLost(node)

    def lose_work(self, w: VirtualWorker) -> None:
        if w.current is not None:
            self.work_lost_us += max(0, self.now - w.since)

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
        if not setting_up:
            self.lose_work(w)
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
        self.say(worker, w, e.WorkerReady(worker, 0 if w.step is None else self.now - w.since))

    def setup_fails(self, worker: int, w: VirtualWorker, step: int) -> bool:
        model = self.models[step]
        if not model.failing_setups:
            return False
        model.failing_setups -= 1
        self.say(worker, w, e.SetupFailed(worker, step, "OSError: no weights"))
        return True

    def needs_setup(self, w: VirtualWorker, step: int) -> bool:
        return w.step is None and self.specs[step].has_setup and step not in w.hosts

    def setup_time(self, worker: int, step: int) -> int:
        return self.models[step].setup(mix(source_key(self.seed, worker + 1_000_003), step))

    def go_on(self, worker: int, w: VirtualWorker) -> None:
        """Start the next unit of a worker, setting its step up first if need be."""
        if w.current is not None or not w.queue or w.stopping:
            return
        w.current = w.queue.popleft()
        w.since = self.now
        w.epoch += 1
        step = w.current.step
        if self.needs_setup(w, step):
            self.later(worker, self.setup_time(worker, step), self.set_up)
        else:
            self.begin(worker, w)

    def set_up(self, worker: int, w: VirtualWorker) -> None:
        assert w.current is not None
        step = w.current.step
        if self.setup_fails(worker, w, step):
            w.queue = type(w.queue)(job for job in w.queue if job.step != step)
            w.current = None
            self.go_on(worker, w)
            return
        w.hosts.add(step)
        self.say(worker, w, e.StepSetUp(worker, step, self.now - w.since))
        w.since = self.now
        self.begin(worker, w)

    def begin(self, worker: int, w: VirtualWorker) -> None:
        job = w.current
        assert job is not None
        model = self.models[job.step]
        if not any(d.is_in(model.hangs) for d in job.data):
            kind = self.kinds.get(w.node, "")
            time = sum(model.service(service_key(d, job.step), kind) for d in job.data)
            w.since += model.overhead_us
            self.later(worker, model.overhead_us + time, self.advance)

    def advance(self, worker: int, w: VirtualWorker) -> None:
        """The unit (or chunk) that a worker runs is over."""
        job = w.current
        assert job is not None
        model = self.models[job.step]
        busy = self.now - w.since
        if any(d.is_in(model.poison) for d in job.data):
            self.die(worker, e.Death.CRASHED)
            return
        w.current = None
        self.last_done = self.now
        flaky = {(job.step, d.root) for d in job.data if d.is_in(model.flaky)} - self.failed_once
        if flaky or any(d.is_in(model.raises) for d in job.data):
            self.failed_once |= flaky
            self.say(worker, w, e.UnitFailed(worker, job.key, "ValueError: bad", busy))
        else:
            model.served += len(job.inputs)
            made = [
                (d, x.task)
                for x, whole in zip(job.inputs, job.data, strict=True)
                for d in self.outputs_of(job.step, whole)[x.skip :]
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
                if self.keep:
                    self.delivered.update((data.label, item) for item in data.items)
                    self.delivered_at.append(self.now)
            else:
                self.data[ident] = data
            n = len(data.items)
            made.append(e.Output(ident, self.models[step].out_bytes, n, parent, n > 1))
        return tuple(made)

    # What is done -----------------------------------------------------------------------------------------------

    def set_up_node(self, x: c.SetUpNode) -> None:
        self.after(SECOND, e.NodeSetUp(x.node, x.step))

    def start_worker(self, x: c.StartWorker) -> None:
        self.workers[x.worker] = VirtualWorker(x.node, x.step, since=self.now + self.start_us)
        setup = self.setup_time(x.worker, x.step) if x.step is not None else 0
        self.later(x.worker, self.start_us + setup, self.up)

    def stop_worker(self, x: c.StopWorker) -> None:
        w = self.workers.get(x.worker)
        if w is None:
            return
        assert x.now or (not w.queue and w.current is None and not w.suspended), "stopped with work in hand"
        w.stopping = True
        w.epoch += 1
        self.lose_work(w)
        self.later(x.worker, self.leave_us, lambda worker, w: self.leave(worker))

    def kill_worker(self, x: c.KillWorker) -> None:
        if x.worker in self.workers:
            self.die(x.worker, e.Death.KILLED)

    def dispatch(self, x: c.Dispatch) -> None:
        inputs = x.special or tuple([c.Input(t, t, 0, 0, 0) for t in x.tasks])
        data = tuple([_part(self.data[i.data], i.start, i.stop) for i in inputs])
        w = self.workers.get(x.worker)
        if w is not None:
            w.queue.append(Job(x.tasks[0], x.step, inputs, data))
            self.go_on(x.worker, w)

    def resume(self, x: c.Resume) -> None:
        w = self.workers.get(x.worker)
        if w is not None:
            w.queue.append(w.suspended.pop(x.unit))
            self.go_on(x.worker, w)

    def cancel(self, x: c.Cancel) -> None:
        w = self.workers.get(x.worker)
        if w is not None:
            del w.suspended[x.unit]

    def release(self, x: c.Release) -> None:
        for t in x.tasks:
            del self.data[t]

    def quarantine(self, x: c.Quarantine) -> None:
        self.quarantined.append((x.step, _part(self.data[x.data], x.start, x.stop)))

    def pull(self, x: c.Pull) -> None:
        n = min(x.count, self.sources - self.source_next)
        outputs = []
        for _ in range(n):
            self.data[self.next_id] = self.source_data(self.source_next)
            outputs.append(e.Output(self.next_id, self.source_bytes, self.items, -1, self.items > 1))
            self.next_id += 1
            self.source_next += 1
        self.after(10, e.SourceGave(tuple(outputs)) if n else e.SourceEnded())

    def solve(self, x: c.Solve) -> None:
        plan = solve(x.problem)
        size = len(x.problem.sites) * len(x.problem.loads)
        self.after(_PLAN_US * size, e.Solved(x.number, plan))

    def abort(self, x: c.Abort) -> None:
        self.aborted = x.reason

    def finish(self, x: c.Finish) -> None:
        self.finished = True


def _part(whole: Data, start: int, stop: int) -> Data:
    return Data(whole.label, whole.items[start:stop], whole.key) if stop else whole


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
    c.Solve: World.solve,
    c.Abort: World.abort,
    c.Finish: World.finish,
}
