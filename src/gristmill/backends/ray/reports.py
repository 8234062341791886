"""Talks with actors: batches of messages out as calls, their reports back as replies."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from gristmill.backends.base import Plan
from gristmill.backends.engine.account import RunAccount
from gristmill.backends.engine.outputs import KeptOutputs
from gristmill.backends.engine.protocol import FromWorker, Message, ToWorker
from gristmill.backends.engine.reports import Reports
from gristmill.backends.ray.agent import LastMark
from gristmill.backends.ray.background_calls import BackgroundCalls
from gristmill.backends.ray.mailbox import Mailbox
from gristmill.backends.ray.store import RayStore
from gristmill.backends.ray.workers import Call, RayNode, RayWorkerHandle
from gristmill.metrics.view import View
from gristmill.scheduling import events as e
from gristmill.scheduling.state import State

_FETCH_S = 60.0
_CALL_US = 20_000
"""Work that one call should bring at the most, unless it is a single unit: its reports come back together."""


class RayReports(Reports):
    """Knows the workers and nodes of the run as the driver sees them."""

    def __init__(
        self,
        ray: Any,
        plan: Plan,
        state: State,
        store: RayStore,
        outputs: KeptOutputs,
        account: RunAccount,
        view: View,
    ) -> None:
        super().__init__(plan, state, store, outputs, account, view)
        self.ray = ray
        self.objects = store
        self.mailbox = Mailbox()
        self.background_calls = BackgroundCalls()
        self.workers: dict[int, RayWorkerHandle] = {}
        self.nodes: dict[int, RayNode] = {}
        self.lost_at: dict[str, float] = {}
        """When nodes were given up that Ray may still show."""

    def listen(self, until: float) -> None:
        self.mailbox.listen(until)

    def close(self) -> None:
        self.mailbox.close()

    # Calls ------------------------------------------------------------------------------------------------------

    def send(self, all_freed: bool = False) -> None:
        for w in [w for w in self.workers.values() if w.outbox]:
            messages, w.outbox = w.outbox, []
            if not w.dead:
                for batch in self._batches(messages):
                    self._call(w, batch)

    def _batches(self, messages: list[Message]) -> list[list[Message]]:
        """Short units together, long ones alone, so that no report waits long for another."""
        batches: list[list[Message]] = []
        room = 0
        for message in messages:
            cost = 0
            if message[0] == ToWorker.RUN:
                service = self.state.steps[message[1]].service
                cost = service.service_us() * len(message[3]) if service.is_known else _CALL_US
            elif message[0] == ToWorker.RESUME:
                cost = _CALL_US
            if not batches or cost > room:
                batches.append([])
                room = _CALL_US
            batches[-1].append(message)
            room -= cost
        return batches

    def _call(self, w: RayWorkerHandle, messages: list[Message]) -> None:
        """Send messages as one call; objects travel as its arguments, so that they are fetched ahead."""
        given: dict[int, int] = {}
        refs: list[Any] = []

        def place(x: Any) -> Any:
            bulk = x[3]
            if bulk is None:
                return x
            if id(bulk) not in given:
                given[id(bulk)] = len(refs)
                refs.append(bulk.ref)
            return (*x[:3], given[id(bulk)], *x[4:])

        told = [(*m[:3], [place(x) for x in m[3]]) if m[0] == ToWorker.RUN else m for m in messages]
        call = Call(messages)
        w.calls.append(call)
        reply, call.bulk = w.take.remote(told, *refs)
        self.mailbox.when(reply, lambda said, error: self._answered(w, call, said, error))

    def _answered(self, w: RayWorkerHandle, call: Call, said: Any, error: BaseException | None) -> None:
        """Take in answers in the order of the calls: one whose arguments are lost fails before its turn."""
        call.said, call.error = said, error
        while w.calls and w.calls[0].is_answered and w.id in self.workers and not w.dead:
            call = w.calls.popleft()
            if call.said is None:
                assert call.error is not None
                self._failed(w, call.error, call.messages)
            elif self._fetch(w, call):
                self.hear(w, call.said, call.bulk)

    def _fetch(self, w: RayWorkerHandle, call: Call) -> bool:
        """Get payloads that are wanted here. If they are gone, the worker is given up and they are made again."""
        last = len(self.plan.steps) - 1
        made = (FromWorker.FINISHED, FromWorker.EMITTED)
        w.payloads = None
        if self.outputs.wanted and any(
            m[0] in made and self.running.get((w.id, m[1])) == last and any(x[4] is None for x in m[2])
            for m in call.said or ()
        ):
            try:
                w.payloads = self.ray.get(call.bulk, timeout=_FETCH_S)
            except (self.ray.exceptions.RayError, OSError) as error:
                self.died(w, error)
                return False
        return True

    def hear(self, w: RayWorkerHandle, said: list[Message], bulk: Any) -> None:
        """Take in what a reply says."""
        w.bulk_ref, w.bulk = bulk, None
        for message in said:
            self.take(w, message)
        w.bulk_ref = w.bulk = w.payloads = None
        if w.said_bye and (w.stop_by or w.setup_failed):
            if w.stop_by:
                self.leaves.add(self.since(w))
            self.gone(w)
            self.events.append(e.WorkerLeft(w.id))

    def _failed(self, w: RayWorkerHandle, error: BaseException, messages: list[Message]) -> None:
        """A call did not come back."""
        errors = self.ray.exceptions
        reason = getattr(error, "cause", None) if isinstance(error, errors.RayTaskError) else error
        if isinstance(reason, errors.ObjectLostError):
            self._inputs_lost(w, messages, getattr(reason, "object_ref_hex", ""))
        elif isinstance(error, errors.RayError) and not isinstance(error, errors.RayTaskError):
            self.died(w, error)
        else:
            self._crashed(w, error, messages)

    def _crashed(self, w: RayWorkerHandle, error: BaseException, messages: list[Message]) -> None:
        """A call raised outside of any stage, for lack of memory perhaps. Its first unit is suspected."""
        unit = next((m[2] for m in messages if m[0] == ToWorker.RUN), None)
        step = self.running.get((w.id, unit)) if unit is not None else None
        detail = " ".join(str(error).strip().splitlines()[-1:])[:300]
        self.tell_death(w.id, e.Death.CRASHED, detail, unit, step)
        self.gone(w)
        self.events.append(e.WorkerDied(w.id, e.Death.CRASHED, unit, None, detail))

    def _inputs_lost(self, w: RayWorkerHandle, messages: list[Message], named: str) -> None:
        """An argument of a call is gone, so nothing of it was done."""
        bulks = {x[3] for m in messages if m[0] == ToWorker.RUN for x in m[3] if x[3] is not None}
        gone = {bulk for bulk in bulks if bulk.ref.hex() == named or self.objects.is_lost(bulk)} or bulks
        for message in messages:
            if message[0] == ToWorker.RUN:
                unit = message[2]
                self.running.pop((w.id, unit), None)
                data = tuple(x[3].tasks_at(x[4]) for x in message[3] if x[3] in gone)
                self.events.append(e.InputsLost(w.id, unit, tuple(t for at in data for t in at)))
            else:
                w.outbox.append(message)

    # The end of workers -----------------------------------------------------------------------------------------

    def gone(self, w: RayWorkerHandle) -> None:
        """Forget a worker."""
        self.workers.pop(w.id, None)
        node = self.nodes.get(w.node)
        if node is not None:
            node.free_slots.append(w.slot)
        for key in [k for k in self.running if k[0] == w.id]:
            del self.running[key]
        self.end(w.actor)

    def end(self, actor: Any) -> None:
        """Have an actor killed."""
        self.background_calls.do("end an actor of the run", lambda: self.ray.kill(actor, no_restart=True))

    def leave(self, node: RayNode) -> None:
        """Give back what the run has on a node, which may be gone."""
        node.left = True
        self.end(node.agent)

        def give_back() -> None:
            with ExitStack() as all_of_them:  # also those after one that fails
                for group in node.reservations:
                    all_of_them.callback(self.ray.util.remove_placement_group, group)

        self.background_calls.do(f"give back the CPUs that were reserved on node {node.index}", give_back)

    def died(self, w: RayWorkerHandle, error: BaseException | None) -> None:
        """A worker is dead: find out how."""
        if w.dead or w.id not in self.workers:
            return
        w.dead = True
        w.dead_at = time.monotonic()
        self.end(w.actor)  # its call failed: nothing that it may still say counts
        node = self.nodes.get(w.node)
        if node is None:
            self.bury(w, None, error)
            return
        answer = node.agent.last_mark.remote(w.id, w.slot)
        self.mailbox.when(answer, lambda mark, failure: self.bury(w, None if failure else mark, error))

    def bury(self, w: RayWorkerHandle, mark: LastMark | None, error: BaseException | None) -> None:
        """Tell how a worker died; without a mark its node did not answer."""
        if w.id not in self.workers:
            return
        running = None
        setting_up = None
        node = self.nodes.get(w.node)
        if mark is None and node is not None:
            self.node_lost(node)  # Ray may take a while to note it
            return
        if mark is None:
            cause, detail = e.Death.NODE_LOST, "its node is gone"
        else:
            running, setting_up = mark.task, mark.setting_up
            words = " ".join(mark.words.split("\n")[0].split())
            if mark.out_of_memory or isinstance(error, self.ray.exceptions.OutOfMemoryError):
                cause, detail = e.Death.OUT_OF_MEMORY, "more than its node has for it"
            elif words:
                cause, detail = e.Death.CRASHED, words
            else:
                cause, detail = e.Death.KILLED, "without a word"
        step = self.running.get((w.id, running)) if running is not None else None
        if mark is not None and running is not None and step is not None:
            self.note_error(running, min(mark.stage, len(self.plan.steps[step].stages) - 1), "", [])
        self.tell_death(w.id, cause, detail, running, step)
        self.gone(w)
        self.events.append(e.WorkerDied(w.id, cause, running, setting_up, detail))

    def node_lost(self, node: RayNode, why: str = "") -> None:
        """A node is gone with all that was on it."""
        del self.nodes[node.index]
        self.leave(node)  # it may be there still, and only its agent gone
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
