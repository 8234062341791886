"""Messages to actors, as calls, and the reports in their replies."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from gristmill.backends.engine import protocol as wp
from gristmill.backends.engine.reports import Reports
from gristmill.backends.engine.run import RunParts
from gristmill.backends.ray.agent import LastMark
from gristmill.backends.ray.calls import BackgroundCalls, Mailbox
from gristmill.backends.ray.store import RayStore
from gristmill.backends.ray.workers import Call, RayNode, RayWorkerHandle
from gristmill.scheduling import events as e

_FETCH_S = 60.0
_CALL_US = 20_000
"""Work that one call should bring at the most, unless it is a single unit: its reports come back together."""


class RayReports(Reports):
    """Knows the workers and nodes of the run as the driver sees them."""

    def __init__(self, ray: Any, parts: RunParts, store: RayStore) -> None:
        super().__init__(parts, store)
        self.ray = ray
        self.objects = store
        self.mailbox = Mailbox()
        self.background_calls = BackgroundCalls()
        self.workers: dict[int, RayWorkerHandle] = {}
        self.nodes: dict[int, RayNode] = {}
        self.lost_at: dict[str, float] = {}
        """When nodes were given up that Ray may still list."""

    def listen(self, until: float) -> None:
        self.mailbox.listen(until)

    def close(self) -> None:
        self.mailbox.close()

    # Calls ------------------------------------------------------------------------------------------------------

    def send(self, all_freed: bool = False) -> None:
        for w in [w for w in self.workers.values() if w.outbox]:
            messages, w.outbox = w.outbox, []
            if w.dead:
                continue
            if w.in_flight:
                self._give(w, messages)
                continue
            for batch in self._batches(messages):
                self._call(w, batch)

    def _batches(self, messages: list[wp.ToWorker]) -> list[list[wp.ToWorker]]:
        """Group short units and leave long ones alone, so that no report waits long for another."""
        batches: list[list[wp.ToWorker]] = []
        left_us = 0
        for message in messages:
            cost = 0
            if isinstance(message, wp.RunUnit):
                service = self.state.steps[message.step].service
                cost = service.service_us() * len(message.inputs) if service.is_known else _CALL_US
            elif isinstance(message, wp.ResumeUnit):
                cost = _CALL_US
            if not batches or cost > left_us:
                batches.append([])
                left_us = _CALL_US
            batches[-1].append(message)
            left_us -= cost
        return batches

    def _call(self, w: RayWorkerHandle, messages: list[wp.ToWorker]) -> None:
        """Send messages as one call, whose answer has the reports."""
        call = Call(messages)
        w.calls.append(call)
        reply, call.bulk = w.take.remote(*self._arguments(messages))
        self.mailbox.when(reply, lambda messages, error: self._answered(w, call, messages, error))

    def _give(self, w: RayWorkerHandle, messages: list[wp.ToWorker]) -> None:
        """Send messages to a worker with several units in flight, which reports to `poll`."""

        def given(_: None, error: BaseException | None) -> None:
            if error is not None and w.id in self.workers and not w.dead:
                self._failed(w, error, messages)

        self.mailbox.when(w.take.remote(*self._arguments(messages)), given)

    def poll(self, w: RayWorkerHandle) -> None:
        """Ask a worker with several units in flight for its next reports. It answers when there is one."""
        reply, bulk = w.actor.poll.options(num_returns=2).remote()

        def answered(messages: wp.Plain | None, error: BaseException | None) -> None:
            if w.id not in self.workers or w.dead:
                return
            if messages is None:
                self.ask_cause(w, error)
                return
            call = Call([], bulk, list(wp.FROM_WORKER.decode(messages)))
            if self._fetch(w, call):
                self.process_reply(w, call.reply or [], bulk)
                if w.id in self.workers and not w.stop_by:
                    self.poll(w)

        self.mailbox.when(reply, answered)

    @staticmethod
    def _arguments(messages: list[wp.ToWorker]) -> list[Any]:
        """Return the arguments of a call: the messages, and the objects in them, so that Ray fetches them ahead."""
        positions: dict[int, int] = {}
        refs: list[Any] = []

        def with_position(x: wp.TaskInput) -> wp.TaskInput:
            """Name the argument in place of the object."""
            if x.source is None:
                return x
            position = positions.setdefault(id(x.source), len(refs))
            if position == len(refs):
                refs.append(x.source.ref)
            return x._replace(source=position)

        sent = [
            m._replace(inputs=tuple([with_position(x) for x in m.inputs])) if isinstance(m, wp.RunUnit) else m
            for m in messages
        ]
        return [wp.TO_WORKER.encode(sent), *refs]

    def _answered(self, w: RayWorkerHandle, call: Call, messages: wp.Plain | None, error: BaseException | None) -> None:
        """Process answers in the order of the calls: a call whose arguments are lost fails before its turn."""
        call.reply, call.error = None if messages is None else list(wp.FROM_WORKER.decode(messages)), error
        while w.calls and w.calls[0].is_answered and w.id in self.workers and not w.dead:
            call = w.calls.popleft()
            if call.reply is None:
                assert call.error is not None
                self._failed(w, call.error, call.messages)
            elif self._fetch(w, call):
                self.process_reply(w, call.reply, call.bulk)

    def _fetch(self, w: RayWorkerHandle, call: Call) -> bool:
        """Get the payloads that the driver keeps. If they are lost, the worker is given up and they are made again."""
        last = len(self.plan.steps) - 1
        w.payloads = None
        if self.outputs.wanted and any(
            isinstance(m, wp.Finished | wp.Emitted)
            and self.running.get((w.id, m.unit)) == last
            and any(x.payload is None for x in m.outputs)
            for m in call.reply or ()
        ):
            try:
                w.payloads = self.ray.get(call.bulk, timeout=_FETCH_S)
            except (self.ray.exceptions.RayError, OSError) as error:
                self.ask_cause(w, error)
                return False
        return True

    def process_reply(self, w: RayWorkerHandle, reply: list[wp.FromWorker], bulk: Any) -> None:
        w.bulk_ref, w.bulk = bulk, None
        for message in reply:
            self.take(w, message)
        w.bulk_ref = w.bulk = w.payloads = None
        if w.left and (w.stop_by or w.setup_failed):
            self.has_left(w)
            self.gone(w)

    def _failed(self, w: RayWorkerHandle, error: BaseException, messages: list[wp.ToWorker]) -> None:
        """Handle a call that failed."""
        errors = self.ray.exceptions
        reason = error.cause if isinstance(error, errors.RayTaskError) else error
        if isinstance(reason, errors.ObjectLostError):
            self._inputs_lost(w, messages, reason.object_ref_hex)
        elif isinstance(error, errors.RayError) and not isinstance(error, errors.RayTaskError):
            self.ask_cause(w, error)
        else:
            self._crashed(w, error, messages)

    def _crashed(self, w: RayWorkerHandle, error: BaseException, messages: list[wp.ToWorker]) -> None:
        """Handle a call that raised outside of any stage, perhaps for lack of memory. Its first unit is suspected."""
        unit = next((m.unit for m in messages if isinstance(m, wp.RunUnit)), None)
        self.died(w, e.Death.CRASHED, " ".join(str(error).strip().splitlines()[-1:])[:300], unit)
        self.gone(w)

    def _inputs_lost(self, w: RayWorkerHandle, messages: list[wp.ToWorker], named: str) -> None:
        """Handle a call whose argument is lost, so that none of its units ran."""
        inputs = [x for m in messages if isinstance(m, wp.RunUnit) for x in m.inputs]
        bulks = {x.source for x in inputs if x.source is not None}
        gone = {bulk for bulk in bulks if bulk.ref.hex() == named or self.objects.is_lost(bulk)} or bulks
        for message in messages:
            if isinstance(message, wp.RunUnit):
                self.running.pop((w.id, message.unit), None)
                data = [task for x in message.inputs if x.source in gone for task in x.source.tasks_at(x.offset)]
                self.events.append(e.InputsLost(w.id, message.unit, tuple(data)))
            else:
                w.outbox.append(message)

    # The end of workers -----------------------------------------------------------------------------------------

    def gone(self, w: RayWorkerHandle) -> None:
        """Forget a worker."""
        self.workers.pop(w.id, None)
        node = self.nodes.get(w.node)
        if node is not None:
            node.free_slots.append(w.slot)
        self.forget_units(w)
        self.end(w.actor)

    def end(self, actor: Any) -> None:
        """Kill an actor in the background."""
        self.background_calls.do("end an actor of the run", lambda: self.ray.kill(actor, no_restart=True))

    def leave(self, node: RayNode) -> None:
        """Release what the run has on a node, which may be gone."""
        node.left = True
        self.end(node.agent)

        def release() -> None:
            with ExitStack() as all_groups:  # also those after one that fails
                for group in node.reservations:
                    all_groups.callback(self.ray.util.remove_placement_group, group)

        self.background_calls.do(f"release the CPUs that were reserved on node {node.index}", release)

    def ask_cause(self, w: RayWorkerHandle, error: BaseException | None) -> None:
        """Ask the node of a dead worker for the cause."""
        if w.dead or w.id not in self.workers:
            return
        w.dead = True
        w.dead_at = time.monotonic()
        self.end(w.actor)  # its call failed: later messages are ignored
        node = self.nodes.get(w.node)
        if node is None:
            self.report_cause(w, None, error)
            return
        answer = node.agent.last_mark.remote(w.id, w.slot)
        self.mailbox.when(answer, lambda mark, failure: self.report_cause(w, None if failure else mark, error))

    def report_cause(self, w: RayWorkerHandle, mark: LastMark | None, error: BaseException | None) -> None:
        """Report how a worker died. Without a mark its node did not answer."""
        if w.id not in self.workers:
            return
        node = self.nodes.get(w.node)
        if mark is None:
            if node is not None:
                self.node_lost(node)  # Ray may notice it later
                return
            self.died(w, e.Death.NODE_LOST, "its node is gone")
        else:
            words = " ".join(mark.exit_message.split("\n")[0].split())
            if mark.out_of_memory or isinstance(error, self.ray.exceptions.OutOfMemoryError):
                cause, detail = e.Death.OUT_OF_MEMORY, "more than its node has for it"
            elif words:
                cause, detail = e.Death.CRASHED, words
            else:
                cause, detail = e.Death.KILLED, "without an exit message"
            begun = mark.begun if w.in_flight else None
            self.died(w, cause, detail, mark.task, mark.stage, mark.setting_up, begun)
        self.gone(w)

    def node_lost(self, node: RayNode, why: str = "") -> None:
        """Give up a node with all that was on it."""
        del self.nodes[node.index]
        self.leave(node)  # perhaps only its agent is gone
        self.lost_at[node.ident] = time.monotonic()
        for w in [w for w in self.workers.values() if w.node == node.index]:
            w.dead = True
            self.gone(w)
        self.events.append(e.NodeLost(node.index))
        lost = self.objects.node_lost(node.index)
        if lost:
            self.events.append(e.DataLost(tuple(lost)))
        host = node.facts.host if node.facts is not None else node.ident[:8]
        rebuilt = f"; the data of {len(lost)} tasks was there and is made again" if lost else ""
        reason = f": {why}" if why else ""
        self.view.message(f"node {node.index} ({host}) was lost{reason}{rebuilt}")
