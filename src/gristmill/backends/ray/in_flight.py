"""A worker with several units in flight as an asynchronous Ray actor: calls bring messages, others wait for reports."""

from __future__ import annotations

import asyncio
import mmap
import os
from collections.abc import Sequence
from typing import Any

from gristmill.backends.engine import protocol as wp
from gristmill.backends.engine.begun import BEGUN_BYTES, BegunNotes
from gristmill.backends.engine.in_flight import InFlightMessage, UnitsInFlight
from gristmill.backends.engine.worker import Limits, WorkerIdentity
from gristmill.backends.ray.worker import BEGUN_AT, LoadedActor, Notes, RayWorker, Reply, to_bytes
from gristmill.backends.stage_errors import details, one_line

CALLS = 1000
"""Calls that may wait in an actor at the same time: one for reports, the others for messages."""


class RayInFlightWorker(RayWorker):
    """Keeps the payloads of outputs until they are reported, in any order."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        *_, notes = parts
        self._notes = BegunNotes(mmap.mmap(notes, BEGUN_BYTES, offset=BEGUN_AT + self.setting.slot * BEGUN_BYTES))
        self._payloads: dict[int, list[Any]] = {}
        self._put = 0
        self._sent_notes: list[int] = []
        """Of units in the last reply, which may not have arrived."""
        self.news = asyncio.Event()
        """There is something to report."""
        self.units: UnitsInFlight | None = None

    def start(self) -> None:
        super().start()
        if not self.stopping:
            timeout_s = self.timeout_s(self.setting.step)
            self.units = UnitsInFlight(self, self.setting.in_flight, timeout_s, self._notes, self.news.set)

    def receive(self, messages: Sequence[wp.ToWorker], given: Sequence[Any]) -> None:
        """Take the messages of a call, with the objects that they name by their position."""
        assert self.units is not None
        for message in messages:
            if isinstance(message, wp.RunUnit):
                inputs = [x if x.source is None else x._replace(source=given[x.source]) for x in message.inputs]
                message = message._replace(inputs=tuple(inputs))
            assert isinstance(message, InFlightMessage)
            self.units.take(message)

    async def next_reply(self) -> Reply:
        """Wait until there is something to report. The call confirms that the reply before has arrived."""
        assert self.units is not None
        self.units.forget(self._sent_notes)
        await self.news.wait()
        self._sent_notes = self.units.take_ended()
        return self.reply()

    async def end(self) -> None:
        if self.units is not None:
            await self.units.cancel()
        self.stopping = True
        self.leave()

    # Payloads -----------------------------------------------------------------------------------------------------

    def reply(self) -> Reply:
        self.news.clear()
        self.outbox = [self._with_payloads(message) for message in self.outbox]
        return super().reply()

    def _with_payloads(self, message: wp.FromWorker) -> wp.FromWorker:
        if isinstance(message, wp.Finished | wp.Emitted):
            return message._replace(outputs=tuple([self._placed(x) for x in message.outputs]))
        return message

    def _placed(self, x: wp.TaskOutput) -> wp.TaskOutput:
        """Put a payload into the object of this reply."""
        if x.payload is not None or not x.length:
            return x
        self.made.append(self._payloads.pop(x.offset))
        return x._replace(offset=len(self.made) - 1)

    def put(self, parts: list[Any]) -> tuple[int, int]:
        _, length = super().put(parts)
        self._put += 1
        self._payloads[self._put] = self.made.pop()
        return self._put, length

    def get(self, x: wp.TaskInput) -> bytearray:
        return to_bytes(x.source[x.offset])

    def free(self, offset: int, length: int) -> None:
        del self._payloads[offset]


class InFlightActor(LoadedActor):
    """The actor. All of its methods and the stage run in one event loop, which is not in the main thread."""

    def __init__(self, setting: WorkerIdentity, notes: Notes) -> None:
        super().__init__(setting, notes)
        self.worker: RayInFlightWorker | None = None
        self._is_set_up = asyncio.Event()

    async def hello(self) -> int:
        """Return the pid of this process."""
        return os.getpid()

    async def begin(self, pickled: bytes, path: list[str], limits: Limits) -> tuple[wp.Plain, str]:
        """Load the stages and set up. Return the messages, and why the stages could not be loaded."""
        try:
            fd, steps, documents = self.load(pickled, path)
        except BaseException as error:  # loading stages runs the user's code; the driver reports the error
            return [], f"{one_line(error)}\n{details(error)}"
        self.worker = worker = RayInFlightWorker(self.setting, steps, documents, limits, fd)
        worker.start()
        if worker.stopping:
            worker.leave()
        else:
            self._is_set_up.set()
        return worker.reply()[0], ""

    async def take(self, messages: wp.Plain, *given: Any) -> None:
        await self._is_set_up.wait()  # calls of an asynchronous actor need not begin in their order
        assert self.worker is not None
        self.worker.receive(list(wp.TO_WORKER.decode(messages)), given)

    async def poll(self) -> Reply:
        """Return reports as soon as there are some."""
        assert self.worker is not None
        return await self.worker.next_reply()

    async def leave(self) -> wp.Plain:
        """Cancel what is in flight, and tear down."""
        if self.worker is None:
            return wp.FROM_WORKER.encode([wp.Left([], [])])
        await self.worker.end()
        return self.worker.reply()[0]
