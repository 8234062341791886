"""The driver of a run on Ray."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import Counter
from typing import Any

from gristmill.backends.base import RunRecord
from gristmill.backends.engine.driver import INTERRUPT_GRACE_S, STOP_GRACE_S, Driver
from gristmill.backends.engine.machine import LOGICAL_GPU_BYTES
from gristmill.backends.engine.memory import MemoryUse
from gristmill.backends.engine.protocol import FROM_WORKER, Ready
from gristmill.backends.engine.run import RunParts
from gristmill.backends.engine.worker import Limits, WorkerIdentity
from gristmill.backends.ray.agent import NodeAgent, NodeFacts
from gristmill.backends.ray.calls import in_one_line
from gristmill.backends.ray.cluster import NodeState, NodeWatch, nodes_of
from gristmill.backends.ray.in_flight import CALLS, InFlightActor
from gristmill.backends.ray.ray_config import RayConfig
from gristmill.backends.ray.reports import RayReports
from gristmill.backends.ray.reservations import Reservations
from gristmill.backends.ray.store import RayStore
from gristmill.backends.ray.worker import INTERRUPT, SLOTS, WorkerActor, set_up_node
from gristmill.backends.ray.workers import RayNode, RayWorkerHandle
from gristmill.core import loss
from gristmill.core.loss import LossWatch
from gristmill.errors import PipelineError
from gristmill.logs import logger
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.settings import UNIT

_CHECK_S = 0.5
_START_S = 60.0
"""If the process of a worker does not run by then, Ray had no free resources for it."""
_DOUBT_S = 15.0
"""How long a node that did not answer is not used. If it is gone, Ray notices within that time."""
_UNSEEN = 2
_NODE_SETUPS = 3
_CAUSE_S = 30.0
"""How long to wait for an agent to report why a worker died."""
_CAUGHT_S = 5.0
"""How long the driver may take to notice that the cluster is lost, before another thread prints it."""
_WAIT_US = 20_000_000
_SETTLED = 2
"""How many times in a row a new size of a node must be seen until it counts: Ray takes a while to notice what ended."""


class RayDriver(Driver):
    """Carries out the scheduler's commands with actors. Nodes come and go as Ray reports."""

    def __init__(
        self, ray: Any, config: RayConfig, parts: RunParts, steps: bytes, limits: Limits, store: RayStore
    ) -> None:
        self.talk = RayReports(ray, parts, store)
        super().__init__(parts, self.talk, store, MemoryUse())
        self.ray = ray
        self.config = config
        self.limits = limits
        self.objects = store
        self._strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        self._steps = ray.put(steps)
        self._path = [str(p) for p in sys.path]
        self._worker_class = ray.remote(WorkerActor)
        self._in_flight_class = ray.remote(InFlightActor)
        self._agent_class = ray.remote(NodeAgent)
        self._set_up_node = ray.remote(set_up_node)
        self._first: list[e.NodeJoined] = []
        self._joined = 0
        self._first_worker = False
        """There was one, or the user was warned that there is none."""
        self._loss = loss.describe(ray.get_runtime_context().gcs_address, config.cluster_timeout_s)
        self._is_lost = threading.Event()
        self._reservations = Reservations(
            ray,
            self.talk.background_calls,
            self.talk.mailbox,
            lambda group, tell: self._watch.await_group(group, tell),
            self.view.message,
        )
        fd = self.source.fileno()
        if fd is not None:
            self.talk.mailbox.watch(fd, self.source.woken)
        self._see(nodes_of(ray))
        self._watch = NodeWatch(ray, lambda nodes: self.talk.mailbox.post(self._seen, nodes))
        self._loss_watch = LossWatch(lambda: self._watch.answered_at, config.cluster_timeout_s, self._cluster_lost)

    def run(self) -> RunRecord:
        try:
            return super().run()
        except PipelineError as error:
            if self._is_lost.is_set():
                raise loss.ClusterLost(str(error)) from None
            raise

    def close(self) -> None:
        self._loss_watch.close()
        self._watch.close()
        if not self._is_lost.is_set():  # a lost cluster answers no calls
            for w in self.talk.workers.values():
                self.talk.end(w.actor)
            for node in self.talk.nodes.values():
                self.talk.leave(node)
        self.talk.background_calls.close(wait=not self._is_lost.is_set())
        self._report_failed_calls()
        super().close()

    def _cluster_lost(self) -> None:
        """Called in a thread. If the driver's thread waits in a call to Ray, Ray will end this process in a moment."""

        def lose(_: Any, error: BaseException | None) -> None:
            self._is_lost.set()
            self.reports.broken = self._loss

        self.talk.mailbox.post(lose, None)
        if not self._is_lost.wait(_CAUGHT_S):
            logger.error("%r is stopped: %s", self.plan.name, self._loss)

    # Nodes ------------------------------------------------------------------------------------------------------

    def nodes(self) -> list[e.NodeJoined]:
        return self._first

    def _seen(self, nodes: list[NodeState], error: BaseException | None) -> None:
        self._see(nodes)

    def _see(self, nodes: list[NodeState]) -> None:
        """Compare the nodes that are up with those that are known."""
        up = {node.ident: node for node in nodes}
        known = {node.ident for node in self.talk.nodes.values()}
        for node in list(self.talk.nodes.values()):
            node.unseen = 0 if node.ident in up else node.unseen + 1
            if node.unseen >= _UNSEEN:
                self.talk.node_lost(node)
        for ident, state in up.items():
            if ident not in known and time.monotonic() - self.talk.lost_at.get(ident, -_DOUBT_S) >= _DOUBT_S:
                self._welcome(state)
        for node in self.talk.nodes.values():
            if node.facts is not None and node.ident in up:
                self._compare(node, up[node.ident])

    def _compare(self, node: RayNode, state: NodeState) -> None:
        """Report a new size of a node, if other jobs have taken or released some of it for a while."""
        size = self._size(node, state)
        if size == node.size or size != node.seen:
            node.seen, node.times = size, 0
            return
        node.times += 1
        if node.times >= _SETTLED:
            node.size = size
            self.reports.events.append(e.NodeResized(node.index, *size))
            if node.asked:
                self._reservations.want(node, size[0] / UNIT)

    def _size(self, node: RayNode, state: NodeState) -> tuple[int, int, tuple[int, ...]]:
        """Return the resources of a node that this run may use: those that it uses, and free ones."""
        own = [w for w in self.talk.workers.values() if w.node == node.index]
        share = self.config.cpu_allocation_percentage
        cpus = min(state.cpus * share, state.free_cpus + node.reserved)
        sizes = self._gpu_sizes(node.facts, state.gpus)
        taken = math.ceil(round(state.gpus - state.free_gpus - sum(w.gpu for w in own), 3))
        ours = {i for w in own for i in w.gpus}
        for i in [i for i in reversed(range(len(sizes))) if i not in ours][: max(0, taken)]:
            sizes[i] = -1
        return int(cpus * UNIT), state.memory, tuple(sizes)

    def _gpu_sizes(self, facts: NodeFacts, count: int) -> list[int]:
        size = None if self.config.gpu_memory_gb is None else int(self.config.gpu_memory_gb * 2**30)
        real = facts.gpu_bytes
        return [size or (real[i] if i < len(real) else LOGICAL_GPU_BYTES) for i in range(count)]

    def _welcome(self, state: NodeState) -> None:
        """Start an agent on a node. The node is used once the agent has answered."""
        agent = self._agent_class.options(
            num_cpus=0, scheduling_strategy=self._strategy(state.ident, soft=False), max_concurrency=1
        ).remote(self.config.node_memory)
        node = RayNode(self._joined, state.ident, agent, free_slots=list(range(SLOTS))[::-1])
        self._joined += 1
        self.talk.nodes[node.index] = node

        def described(facts: NodeFacts | None, error: BaseException | None) -> None:
            if facts is not None and node.index in self.talk.nodes:
                self._joins(node, state, facts)
            elif node.index in self.talk.nodes:
                self.talk.node_lost(node, f"nothing could be started there ({in_one_line(error)})")
                if not self.talk.nodes and not self._first:
                    self.reports.broken = f"nothing could be started on any node of the cluster:\n{error}{_hint(error)}"

        self.talk.mailbox.when(agent.describe.remote(), described)

    def _joins(self, node: RayNode, state: NodeState, facts: NodeFacts) -> None:
        node.facts = facts
        node.size = node.seen = cpu, memory, gpus = self._size(node, state)
        joined = e.NodeJoined(node.index, cpu, memory, tuple(self._gpu_sizes(facts, state.gpus)))
        self._first.append(joined)
        self.reports.events.append(joined)
        if gpus != joined.gpus:
            self.reports.events.append(e.NodeResized(node.index, cpu, memory, gpus))

    def set_up_node(self, x: c.SetUpNode) -> None:
        node = self.talk.nodes.get(x.node)
        if node is None:
            return
        node.setups[x.step] = node.setups.get(x.step, 0) + 1
        ref = self._set_up_node.options(
            num_cpus=0, max_retries=0, scheduling_strategy=self._strategy(node.ident, soft=False)
        ).remote(self._steps, self._path, x.step, node.facts.host)

        def done(error: str | None, failure: BaseException | None) -> None:
            if x.node not in self.talk.nodes:
                return
            if failure is not None:
                if node.setups[x.step] < _NODE_SETUPS:  # killed, or its node is lost, which is noticed in a moment
                    self.set_up_node(x)
                    return
                error = f"its process died: {failure}"
            self.reports.events.append(
                e.NodeSetupFailed(x.node, x.step, error) if error else e.NodeSetUp(x.node, x.step)
            )

        self.talk.mailbox.when(ref, done)

    # Workers ----------------------------------------------------------------------------------------------------

    def start_worker(self, x: c.StartWorker) -> None:
        node = self.talk.nodes.get(x.node)
        if node is None or node.facts is None:
            return
        step = -1 if x.step is None else x.step
        spec = self.scheduler.state.steps[x.step].spec if x.step is not None else None
        slot = node.free_slots.pop()
        gpus = math.floor(len(x.gpus) * x.gpu_share / UNIT * 1e4) / 1e4  # rounded up, seven sevenths do not fit
        self._reservations.want(node, node.size[0] / UNIT)
        host = node.facts.host
        settings = WorkerIdentity(x.worker, slot, step, x.cpu / UNIT, x.gpus, (), x.gpu_share / UNIT, host, x.in_flight)
        actor = (
            (self._in_flight_class if x.in_flight else self._worker_class)
            .options(
                num_cpus=0,
                num_gpus=gpus,
                memory=spec.memory if spec is not None and spec.memory else None,
                max_restarts=0,
                max_concurrency=CALLS if x.in_flight else 1,
                scheduling_strategy=self._strategy(node.ident, soft=False),
            )
            .remote(settings, node.facts.notes)
        )
        take = actor.take if x.in_flight else actor.take.options(num_returns=2)
        now = time.perf_counter_ns()
        w = RayWorkerHandle(
            id=x.worker,
            step=step,
            slot=slot,
            node=x.node,
            in_flight=x.in_flight,
            ordered_ns=now,
            actor=actor,
            take=take,
            gpu=gpus,
            gpus=x.gpus,
        )
        self.talk.workers[x.worker] = w
        self._first_worker = True
        self.talk.mailbox.when(actor.hello.remote(), lambda pid, error: self._is_running(w, pid, error))
        begun = actor.begin.remote(self._steps, self._path, self.limits)
        self.talk.mailbox.when(begun, lambda answer, error: self._begun(w, answer, error))

    def _is_running(self, w: RayWorkerHandle, pid: int | None, error: BaseException | None) -> None:
        if pid is not None:
            w.pid = pid
        elif error is not None:
            self.talk.ask_cause(w, error)

    def _begun(self, w: RayWorkerHandle, answer: Any, error: BaseException | None) -> None:
        if error is not None:
            self.talk.ask_cause(w, error)
            return
        messages, problem = answer
        if problem:
            node = self.talk.nodes.get(w.node)
            if not self.reports.loaded:
                self.reports.broken = f"the stages could not be loaded in a worker process:\n{problem}"
            elif node is not None:
                self.talk.node_lost(node, f"the stages could not be loaded there ({in_one_line(problem)})")
            return
        if not self.reports.loaded:
            self.reports.loaded = True
            self.reports.loaded_s = self.reports.now() / 1e6
        if w.id in self.talk.workers:
            # To the balancer a move costs the time until a worker is ready, and here that is seconds.
            since = (time.perf_counter_ns() - w.ordered_ns) // 1000
            reply = [Ready(since) if isinstance(m, Ready) else m for m in FROM_WORKER.decode(messages)]
            self.talk.process_reply(w, reply, None)
            if w.in_flight and w.id in self.talk.workers:
                self.talk.poll(w)

    def stop_worker(self, x: c.StopWorker) -> None:
        w = self.talk.workers.get(x.worker)
        if w is None or w.dead:
            return
        w.ordered_ns = time.perf_counter_ns()
        w.stop_by = time.monotonic() + (INTERRUPT_GRACE_S if x.now else STOP_GRACE_S)
        node = self.talk.nodes.get(w.node)
        if x.now and w.pid and node is not None and not w.in_flight:
            node.agent.signal.remote(w.pid, int(INTERRUPT))
        self.reports.send()
        self.talk.mailbox.when(w.actor.leave.remote(), lambda messages, error: self._left(w, messages, error))

    def _left(self, w: RayWorkerHandle, messages: Any, error: BaseException | None) -> None:
        if error is not None:
            self.talk.ask_cause(w, error)
        elif w.id in self.talk.workers:
            self.talk.process_reply(w, list(FROM_WORKER.decode(messages)), None)

    def kill_worker(self, x: c.KillWorker) -> None:
        w = self.talk.workers.get(x.worker)
        if w is not None:
            self.talk.ask_cause(w, None)

    def find_worker(self, worker: int) -> RayWorkerHandle | None:
        return self.talk.workers.get(worker)

    # Memory and time --------------------------------------------------------------------------------------------

    def _report_failed_calls(self) -> None:
        for line in self.talk.background_calls.reports():
            self.view.message(line)

    def check_workers(self, now: float) -> float:
        self._report_failed_calls()
        self._reservations.check(now)
        nodes = self.talk.nodes.values()
        self.memory.note(sum(node.memory for node in nodes))
        self.memory.limit = sum(node.facts.memory for node in nodes if node.facts is not None)
        by_step: Counter[int | None] = Counter()
        for node in nodes:
            by_step.update(node.worker_bytes)
        self.account.worker_bytes = by_step
        for node in nodes:
            if node.facts is not None and not node.checking:
                pids = {w.id: w.pid for w in self.talk.workers.values() if w.node == node.index and w.pid}
                if pids:
                    self._check_node(node, pids, now)
        if not self._first_worker and not self.talk.workers and self.reports.now() > _WAIT_US:
            self._first_worker = True
            self.view.message("no worker could be started yet: the cluster has too few free resources")
        for w in list(self.talk.workers.values()):
            if w.dead:
                if now > w.dead_at + _CAUSE_S:
                    self.talk.gone(w)
                    self.reports.events.append(e.WorkerDied(w.id, e.Death.UNREACHABLE))
                continue
            if w.stop_by and now > w.stop_by:
                w.stop_by = math.inf
                self.view.message(f"worker {w.id} did not leave in time and is killed")
                self.talk.ask_cause(w, None)
            elif not w.pid and (time.perf_counter_ns() - w.ordered_ns) / 1e9 > _START_S:
                self.view.message(f"worker {w.id} did not start: Ray has no free resources for it now")
                self.talk.gone(w)
                self.reports.events.append(e.WorkerDied(w.id, e.Death.UNREACHABLE))
        return _CHECK_S

    def _check_node(self, node: RayNode, pids: dict[int, int], now: float) -> None:
        node.checking = True

        def answered(answer: Any, error: BaseException | None) -> None:
            node.checking = False
            if error is not None:
                return  # `NodeWatch` reports it if it is gone
            node.memory, resident, gone = answer
            node.worker_bytes = self.account.note_memory(self.scheduler.state.workers, resident)
            for worker in gone:
                w = self.talk.workers.get(worker)
                if w is not None and not w.stop_by:
                    self.talk.ask_cause(w, None)

        self.talk.mailbox.when(node.agent.check.remote(pids, now), answered)


def _hint(error: BaseException | None) -> str:
    """Explain an error of Ray, which ends the actors of a process that it cannot call and names another reason."""
    if "all references to the actor were removed" not in str(error):
        return ""
    return (
        "\nThe head node of the cluster cannot call this process. Check that RAY_AUTH_MODE and RAY_AUTH_TOKEN are the "
        "same here and on the cluster, and that no firewall is between them."
    )
