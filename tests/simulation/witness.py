"""An observer of a world: it counts workers itself and does not use what the scheduler counts about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.placement import Placement
from gristmill.scheduling.records import TaskState, WorkerState
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.simulator.faults import jobs_of
from gristmill.scheduling.simulator.model import Job, VirtualWorker

if TYPE_CHECKING:
    from tests.simulation.world import CheckedWorld


class Witness:
    """Raises `AssertionError` when something runs twice at once, a node is over-committed or the budget is broken."""

    def __init__(self, world: CheckedWorld) -> None:
        self.world = world
        self.placed: dict[int, tuple[int, Placement]] = {}
        """(node, what it holds) of each dedicated worker that is running or starting."""
        self.leaving: set[int] = set()
        """Workers that were draining, or being killed, after the last event."""
        self.forced = 0
        self.steps: dict[int, int] = {}
        """The step of each task that was given to a worker on its own."""
        self.raised: Counter[int] = Counter()
        """How often each of them raised."""
        self.tried: dict[int, dict[int, int]] = {}
        """For each unit that was given to a worker, how often its tasks had been tried before."""

    # Workers on nodes --------------------------------------------------------------------------------------------

    def starts(self, x: c.StartWorker) -> None:
        world = self.world
        assert x.node in world.nodes, f"worker {x.worker} is started on node {x.node}, which is not there"
        node = world.losses.size(x.node)
        if x.step is None:
            return
        assert (x.node, x.step) in world.node_ready or not world.specs[x.step].node_setup, (
            f"worker {x.worker} is started on node {x.node}, which is not set up for step {x.step}"
        )
        self.placed[x.worker] = (x.node, Placement(x.cpu, world.specs[x.step].memory, x.gpus, x.gpu_share))
        here = [p for n, p in self.placed.values() if n == x.node]
        assert sum(p.cpu for p in here) <= node.cpu, f"node {x.node}: the workers hold more CPUs than it has"
        assert sum(p.memory for p in here) <= node.memory, f"node {x.node}: the workers hold more memory than it has"
        for i in x.gpus:
            assert i < len(node.gpus) and node.gpus[i] >= 0, f"node {x.node} has no GPU {i}"
            used = sum(p.gpu_share for p in here if i in p.gpus)
            assert used <= UNIT, f"node {x.node}: GPU {i} is shared out {used / UNIT:g} times"

    def is_gone(self, worker: int) -> None:
        self.placed.pop(worker, None)

    def begins(self, worker: int, w: VirtualWorker, job: Job) -> None:
        """Check that a worker may begin a unit, or the setup for it."""
        world = self.world
        spec = world.specs[job.step]
        assert w.step is None or w.step == job.step, f"worker {worker} of step {w.step} got work of step {job.step}"
        assert (w.node, job.step) in world.node_ready or not spec.node_setup, (
            f"step {job.step} runs on node {w.node}, which is not set up for it"
        )
        cpu = shared_memory = 0
        for other_id, other in world.workers.items():
            runs = jobs_of(other) or ([job] if other is w else [])
            if other.node == w.node and runs:
                cpu += world.specs[runs[0].step].cpu
                shared_memory += world.specs[runs[0].step].memory if other.step is None else 0
            if other is not w or w.limit:
                for theirs in (*other.queue, *runs):
                    if theirs.step == job.step and theirs is not job:
                        _assert_apart(job, theirs, worker, other_id)
        node = world.nodes[w.node]
        assert cpu <= node.cpu, f"node {w.node}: {cpu / UNIT:g} CPUs are busy of {node.cpu / UNIT:g}"
        assert shared_memory <= node.memory, f"node {w.node}: shared workers use more memory than it has"

    # Events and commands ----------------------------------------------------------------------------------------

    def hears(self, events: Sequence[e.Event], commands: Sequence[c.Command]) -> None:
        """Check that leaving workers get no work, new work fits the budget, and no task is tried too often."""
        s = self.world.scheduler.state
        last = None
        for event in events:
            if isinstance(event, e.UnitFailed) and event.unit in self.steps:
                self.raised[event.unit] += 1
                most = self.world.specs[self.steps[event.unit]].max_attempts
                assert self.raised[event.unit] <= most, f"task {event.unit} raised {most} times and was tried again"
            if isinstance(event, e.InputsLost):
                self._counts_no_attempt(event)
        for x in commands:
            if isinstance(x, (c.Dispatch, c.Resume, c.Pull)):
                if not self._rebuilds(x):
                    last = x
                if isinstance(x, c.Dispatch):
                    assert x.worker not in self.leaving, f"worker {x.worker} is leaving and got new work"
                    if self.world.losing:
                        self.tried[x.tasks[0]] = {t: s.tasks[t].attempts - 1 for t in x.tasks}
                    if len(x.tasks) == 1:
                        self.steps[x.tasks[0]] = x.step
                    else:
                        self.steps.pop(x.tasks[0], None)
        self.leaving = {w.id for w in s.workers.values() if w.state >= WorkerState.DRAINING or w.kill_cause is not None}
        forced, self.forced = s.budget.forced > self.forced, s.budget.forced
        if last is None or forced or s.suspects.solo_running or s.config.batch_mode or s.ending.stopping:
            return
        if isinstance(last, c.Pull):
            if s.source.size.known and s.tasks:
                self._fits(s.budget.source_headroom, "tasks of the source")
            return
        if isinstance(last, c.Dispatch):
            step = last.step
        else:
            step = next(unit.step for unit in s.workers[last.worker].assigned if unit.key == last.unit)
        self._fits(s.budget.headroom[step], f"work of step {step}")

    def _counts_no_attempt(self, event: e.InputsLost) -> None:
        """Check that lost inputs do not count as an attempt of the tasks that needed them."""
        for task, before in self.tried.get(event.unit, {}).items():
            t = self.world.scheduler.state.tasks.get(task)
            if t is not None:
                tried = t.attempts - (t.state is TaskState.ASSIGNED)
                assert tried == before, f"task {task} was tried {before} times and {tried} are counted"

    def _rebuilds(self, x: c.Dispatch | c.Resume | c.Pull) -> bool:
        """Whether a command rebuilds lost data, for which capacity is reserved already."""
        if isinstance(x, c.Dispatch):
            return bool(x.special) and bool(x.special[0].wanted)
        return isinstance(x, c.Resume) and x.unit in self.world.scheduler.state.lost.rebuilds

    def _fits(self, headroom: int, what: str) -> None:
        s = self.world.scheduler.state
        total = s.budget.used + headroom
        assert total <= s.config.budget, (
            f"{what} was let in although {s.budget.held} bytes held, {s.budget.reserved} reserved and {headroom} "
            f"kept free exceed the budget of {s.config.budget}"
        )


def _assert_apart(job: Job, other: Job, worker: int, other_worker: int) -> None:
    for x in job.inputs:
        for y in other.inputs:
            if x.wanted or y.wanted:
                assert (
                    x.data != y.data
                    or x.start != y.start
                    or not (set(x.wanted[job.produced :]) & set(y.wanted[other.produced :]))
                ), f"the same outputs of data {x.data} are made again in workers {worker} and {other_worker}"
            elif x.data == y.data and (not x.stop or not y.stop or (x.start < y.stop and y.start < x.stop)):
                raise AssertionError(
                    f"task {x.data} (items {x.start} to {x.stop}) of step {job.step} begins in worker {worker} while "
                    f"worker {other_worker} has it"
                )
