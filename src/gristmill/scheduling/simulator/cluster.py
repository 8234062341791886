"""Nodes and workers in virtual time, and what happens in them. No process, clock or sleep."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.settings import StepSpec
from gristmill.scheduling.simulator import in_flight
from gristmill.scheduling.simulator.draws import mix, uniform
from gristmill.scheduling.simulator.model import (
    SECOND,
    Conditions,
    Data,
    Job,
    Made,
    StepModel,
    VirtualWorker,
    outputs_of,
    service_key,
    source_key,
)

if TYPE_CHECKING:
    from gristmill.scheduling.simulator.faults import Injector
    from gristmill.scheduling.simulator.losses import Losses


class Cluster:
    """Carries out commands by the models of the steps, and keeps future events in order of time."""

    injector: Injector
    losses: Losses

    def __init__(
        self,
        steps: Sequence[StepSpec],
        models: Sequence[StepModel],
        conditions: Conditions,
    ) -> None:
        self.specs, self.models, self.conditions = steps, models, conditions
        self.random = random.Random(conditions.seed)
        self.seed = conditions.seed
        self.straggling = False
        self.losing = False
        """Data can be lost."""
        self.heap: list[tuple[int, int, Any]] = []
        self.seq = 0
        self.now = 0
        self.next_id = 0
        self.nodes: dict[int, e.NodeJoined] = {}
        self.node_ready: set[tuple[int, int]] = set()
        """(node, step) whose `setup_on_node` is done."""
        self.data: dict[int, Data] = {}
        """The store: the data of the tasks that the driver knows."""
        self.workers: dict[int, VirtualWorker] = {}
        self.failed_once: set[tuple[int, str]] = set()
        self.last_done = 0
        """When a unit last finished."""
        self.work_lost_us = 0
        """Time that workers had spent on units which were then taken from them."""
        self.arriving: list[Made] = []
        """Tasks that the current event reports; they count once the scheduler has handled it."""

    def after(self, delay: int, what: e.Event | Callable[[Any], Any]) -> None:
        """Schedule an event, or a function of the world that may return one."""
        self.seq += 1
        heapq.heappush(self.heap, (self.now + delay, self.seq, what))

    def lose(self, node: int) -> e.Event | list[e.Event]:
        self.nodes.pop(node, None)
        self.node_ready = {x for x in self.node_ready if x[0] != node}
        for i in [i for i, w in self.workers.items() if w.node == node]:
            self.lose_worker(i)
        return self.losses.node_lost(node)

    def lose_worker(self, worker: int) -> None:
        """Remove a worker that is lost with its node: no report follows."""
        w = self.remove(worker)
        w.lost = True
        self.lose_work(w)

    def remove(self, worker: int) -> VirtualWorker:
        return self.workers.pop(worker)

    def lose_work(self, w: VirtualWorker) -> None:
        if w.current is not None:
            self.work_lost_us += max(0, self.now - w.since)
        if w.running:
            self.work_lost_us += max(self.now - job.since for job in w.running.values())

    def report(self, worker: int, w: VirtualWorker, what: e.Event | Callable[[Any], Any]) -> None:
        """Report something of a worker to the driver; the reports of a worker arrive late, but in order."""
        lag = self.conditions.lag_us
        w.reported_at = max(w.reported_at, self.now + (self.random.randrange(lag) if lag else 0))

        node = self.nodes.get(w.node)

        def arrive(world: Cluster) -> Any:
            if w.lost or world.nodes.get(w.node) is not node:
                return None  # the node was lost meanwhile, even if this worker had died before
            return what(world) if callable(what) else what

        self.after(w.reported_at - self.now, arrive)

    def die(self, worker: int, cause: e.Death) -> None:
        w = self.remove(worker)
        self.injector.died(w)
        setting_up = w.current is not None and self.needs_setup(w, w.current.step)
        if not setting_up:
            self.lose_work(w)
        running = w.current.key if w.current and not setting_up else None
        step = w.current.step if w.current and setting_up else None
        self.report(worker, w, e.WorkerDied(worker, cause, running, step, begun=in_flight.note_of(self, worker, w)))

    def leave(self, worker: int) -> None:
        if worker in self.workers:
            self.report(worker, self.remove(worker), e.WorkerLeft(worker))

    def later(self, worker: int, delay: int, then: Callable[[int, VirtualWorker], None]) -> None:
        """Continue in a worker after a while, unless it has died, stopped or started something else meanwhile."""
        epoch = self.workers[worker].epoch

        def happen(world: Cluster) -> None:
            w = world.workers.get(worker)
            if w is not None and w.epoch == epoch:
                then(worker, w)

        self.after(delay, happen)

    def up(self, worker: int, w: VirtualWorker) -> None:
        if w.step is not None and self.setup_fails(worker, w, w.step):
            self.leave(worker)
            return
        self.report(worker, w, e.WorkerReady(worker, 0 if w.step is None else self.now - w.since))

    def setup_fails(self, worker: int, w: VirtualWorker, step: int) -> bool:
        model = self.models[step]
        share = self.injector.faults.setup_failures
        if model.failing_setups:
            model.failing_setups -= 1
        elif not share or uniform(mix(mix(self.seed, worker + 4_000_037), step)) >= share:
            return False
        self.report(worker, w, e.SetupFailed(worker, step, "OSError: no weights"))
        return True

    def needs_setup(self, w: VirtualWorker, step: int) -> bool:
        return w.step is None and self.specs[step].has_setup and step not in w.hosts

    def setup_time(self, worker: int, step: int) -> int:
        return self.models[step].setup(mix(source_key(self.seed, worker + 1_000_003), step))

    def start_next(self, worker: int, w: VirtualWorker) -> None:
        """Start the next unit of a worker, setting its step up first if need be."""
        if w.limit:
            in_flight.begin_units(self, worker, w)
            return
        if w.current is not None or not w.queue or w.stopping:
            return
        w.current = w.queue.popleft()
        w.since = self.now
        w.epoch += 1
        self.take_up(worker, w, w.current)

    def take_up(self, worker: int, w: VirtualWorker, job: Job) -> None:
        if w.limit:
            in_flight.run(self, worker, w, job)
        elif self.needs_setup(w, job.step):
            self.later(worker, self.setup_time(worker, job.step), self.set_up)
        else:
            self.begin(worker, w)

    def set_up(self, worker: int, w: VirtualWorker) -> None:
        assert w.current is not None
        step = w.current.step
        if self.setup_fails(worker, w, step):
            w.queue = type(w.queue)(job for job in w.queue if job.step != step)
            w.current = None
            self.start_next(worker, w)
            return
        w.hosts.add(step)
        self.report(worker, w, e.StepSetUp(worker, step, self.now - w.since))
        w.since = self.now
        self.begin(worker, w)

    def begin(self, worker: int, w: VirtualWorker) -> None:
        job = w.current
        assert job is not None
        lost = self.losses.cannot_load(job)
        if lost:
            w.current = None
            self.report(worker, w, e.InputsLost(worker, job.key, lost))
            self.start_next(worker, w)
            return
        job.loaded = True
        model = self.models[job.step]
        if not any(d.is_in(model.hangs) for d in job.data):
            w.since += model.overhead_us
            self.later(worker, model.overhead_us + self.service_time(worker, w, job), self.advance)

    def service_time(self, worker: int, w: VirtualWorker, job: Job) -> int:
        """Return what a unit, or the next chunk of it, takes."""
        kind = self.nodes[w.node].kind
        time = sum(self.models[job.step].service(service_key(d, job.step), kind) for d in job.data)
        if self.straggling:
            time = int(time * self.injector.slowness(worker, mix(job.data[0].key, job.step)))
            timeout = self.specs[job.step].timeout_us
            if timeout is not None:
                time = min(time, timeout * len(job.data) * 3 // 4)  # slow, but it does not hang
        return time

    def advance(self, worker: int, w: VirtualWorker) -> None:
        """End the unit, or the chunk of it, that a worker runs."""
        job = w.current
        assert job is not None
        if any(d.is_in(self.models[job.step].poison) for d in job.data):
            self.die(worker, e.Death.CRASHED)
            return
        w.current = None
        self.report_unit(worker, w, job, self.now - w.since)
        self.start_next(worker, w)

    def report_unit(self, worker: int, w: VirtualWorker, job: Job, busy: int) -> None:
        """Report what a unit, or a chunk of it, has made. A unit that has more to make is suspended."""
        model = self.models[job.step]
        self.last_done = self.now
        flaky = {(job.step, d.root) for d in job.data if d.is_in(model.flaky)} - self.failed_once
        if flaky or any(d.is_in(model.raises) for d in job.data):
            self.failed_once |= flaky
            self.report(worker, w, e.UnitFailed(worker, job.key, "ValueError: bad", busy))
        else:
            model.served += len(job.inputs)
            made = [
                (d, x.task)
                for x, whole in zip(job.inputs, job.data, strict=True)
                for d in self.delivers(x, self.outputs_of(job.step, whole))
            ]
            end = job.produced + model.chunk if model.chunk else len(made)
            part = made[job.produced : end]
            kind: Any = e.UnitFinished
            if end < len(made):
                job.produced = end
                w.suspended[job.key] = job
                kind = e.UnitEmitted
            self.report(worker, w, lambda world: kind(worker, job.key, world.make(job.step, part, w.node), busy))

    @staticmethod
    def delivers(x: c.Input, outputs: list[Data]) -> list[Data]:
        return [outputs[i] for i in x.wanted] if x.wanted else outputs[x.skip :]

    def outputs_of(self, step: int, d: Data) -> list[Data]:
        return outputs_of(self.models[step], step, d)

    def make(self, step: int, outputs: list[tuple[Data, int]], node: int) -> tuple[e.Output, ...]:
        """Create the output tasks of a unit, on their way to the scheduler."""
        size = self.models[step].out_bytes
        made = []
        for ident, (data, parent) in enumerate(outputs, self.next_id):
            n = len(data.items)
            losable = self.losing and self.losses.place(ident, data.key, step, node)
            made.append(e.Output(ident, size, n, parent, n > 1, losable))
        self.next_id += len(made)
        if made:
            self.arriving.append(Made(step, tuple([(o.id, data) for o, (data, _) in zip(made, outputs, strict=True)])))
        return tuple(made)

    # Commands ----------------------------------------------------------------------------------------------------

    def set_up_node(self, x: c.SetUpNode) -> None:
        node = self.nodes[x.node]

        def done(world: Cluster) -> e.Event | None:
            if world.nodes.get(x.node) is not node:
                return None  # it was lost meanwhile
            world.node_ready.add((x.node, x.step))
            return e.NodeSetUp(x.node, x.step)

        self.after(SECOND, done)

    def start_worker(self, x: c.StartWorker) -> None:
        since = self.now + self.conditions.start_us
        self.workers[x.worker] = VirtualWorker(x.node, x.step, since=since, limit=x.in_flight)
        setup = self.setup_time(x.worker, x.step) if x.step is not None else 0
        self.later(x.worker, self.conditions.start_us + setup, self.up)

    def stop_worker(self, x: c.StopWorker) -> None:
        w = self.workers.get(x.worker)
        if w is None:
            return
        idle = not w.queue and w.current is None and not w.running and not w.suspended
        assert x.now or idle, "a worker with work was stopped"
        w.stopping = True
        w.epoch += 1
        self.lose_work(w)
        leave_us = self.conditions.start_us if self.conditions.leave_us is None else self.conditions.leave_us
        self.later(x.worker, leave_us, lambda worker, w: self.leave(worker))

    def limit_in_flight(self, x: c.LimitInFlight) -> None:
        w = self.workers.get(x.worker)
        if w is not None:
            w.limit = x.limit

    def return_waiting(self, x: c.ReturnWaiting) -> None:
        w = self.workers.get(x.worker)
        if w is not None:
            w.returning = True
            units, w.queue = tuple(job.key for job in w.queue), type(w.queue)()
            self.report(x.worker, w, e.UnitsReturned(x.worker, units))

    def kill_worker(self, x: c.KillWorker) -> None:
        if x.worker in self.workers:
            self.die(x.worker, e.Death.KILLED)

    def dispatch(self, x: c.Dispatch) -> None:
        w = self.workers.get(x.worker)
        if w is not None:
            assert not w.stopping, f"worker {x.worker} is stopping and got work"
            inputs = x.special or tuple([c.Input(t, t, 0, 0, 0) for t in x.tasks])
            data = tuple([part(self.losses.gone.get(i.data) or self.data[i.data], i.start, i.stop) for i in inputs])
            early = self.losing and x.tasks[0] % 3 == 0 and not any(i.data in self.losses.gone for i in inputs)
            w.queue.append(Job(x.tasks[0], x.step, inputs, data, loaded=early))
            self.start_next(x.worker, w)

    def resume(self, x: c.Resume) -> None:
        w = self.workers.get(x.worker)
        if w is not None and w.limit:
            in_flight.resume(self, x.worker, w, w.suspended.pop(x.unit))
        elif w is not None:
            w.queue.append(w.suspended.pop(x.unit))
            self.start_next(x.worker, w)

    def cancel(self, x: c.Cancel) -> None:
        w = self.workers.get(x.worker)
        if w is not None:
            del w.suspended[x.unit]


def part(whole: Data, start: int, stop: int) -> Data:
    return Data(whole.label, whole.items[start:stop], whole.key) if stop else whole
