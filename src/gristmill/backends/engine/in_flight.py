"""The units of a worker that has several in flight: they begin, are suspended, time out, end, and are reported."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

from gristmill.backends.async_runner import AsyncUnit
from gristmill.backends.engine import protocol as wp
from gristmill.backends.engine.begun import BegunNotes
from gristmill.backends.engine.payload import load_task
from gristmill.backends.engine.worker import CHUNK_NS, CHUNK_OUTPUTS, Worker, us_since
from gristmill.backends.stage_errors import StageError, stage_error

CANCEL_S = 5.0
"""How long a worker that leaves waits for the units that it has cancelled."""

InFlightMessage = wp.RunUnit | wp.ResumeUnit | wp.DropUnit | wp.LimitUnits | wp.ReturnUnits


@dataclass(eq=False)
class UnitInFlight:
    """A unit that is begun."""

    unit: int
    input: wp.TaskInput
    account: AsyncUnit
    note: int
    """Its entry in the notes; 0: none."""
    skip: int
    """Outputs that an earlier attempt has delivered."""
    position: int = 0
    """Outputs made so far, if it makes lost data again."""
    since: int = 0
    """When it, or its current chunk, began (`time.perf_counter_ns`)."""
    outputs: list[wp.TaskOutput] = field(default_factory=list)
    """Made and not reported yet."""
    work: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    resumed: asyncio.Event = field(default_factory=asyncio.Event)
    is_suspended: bool = False
    timed_out: bool = False
    dropped: bool = False
    """Nothing is reported of it any more."""


class UnitsInFlight:
    """Runs the units of one asynchronous stage in the event loop of a worker, at most ``limit`` at a time.

    Units begin in the order in which they came. One that is suspended keeps its slot. ``changed`` is called when there
    is something to report. The worker then reports it soon, with `take_ended`, and passes what that returned to
    `forget` once the driver has the report.
    """

    def __init__(
        self, worker: Worker, limit: int, timeout_s: float | None, notes: BegunNotes, changed: Callable[[], None]
    ) -> None:
        self._worker = worker
        self._step = worker.setting.step
        self._stage = worker.steps[self._step][0]
        self._streams = self._stage.streams_async()
        self._limit = limit
        self._timeout_s = timeout_s
        self._notes = notes
        self._changed = changed
        self._waiting: deque[wp.RunUnit] = deque()
        self._begun: dict[int, UnitInFlight] = {}
        """By unit, suspended ones too."""
        self._is_closed = False
        self._ended_notes: list[int] = []
        """Of units whose report is not sent yet."""
        self._busy_since = 0
        """Until when the time in which a unit ran is counted, while one runs."""
        self._running = 0
        """Units that are begun and not suspended."""

    def take(self, message: InFlightMessage) -> None:
        match message:
            case wp.RunUnit(_, unit) if self._is_closed:
                self._give_back([unit])
            case wp.RunUnit():
                self._waiting.append(message)
                self._begin()
            case wp.ResumeUnit(unit):
                u = self._begun[unit]
                u.note = self._notes.begin(unit)
                u.is_suspended = False
                u.resumed.set()
                self._start_clock(u)
            case wp.DropUnit(unit):
                self._drop(self._begun[unit])
            case wp.LimitUnits(limit):
                self._limit = limit
            case wp.ReturnUnits():
                self._is_closed = True
                waiting, self._waiting = self._waiting, deque()
                self._give_back([x.unit for x in waiting])

    def take_ended(self) -> list[int]:
        """Return the notes of the units that a report which is sent now is about."""
        ended, self._ended_notes = self._ended_notes, []
        return ended

    def forget(self, notes: Iterable[int]) -> None:
        """Remove the notes of units whose report has arrived."""
        for note in notes:
            self._notes.end(note)

    async def cancel(self) -> None:
        """Give all units back and wait for those that are begun, though not for ever."""
        self._is_closed = True
        begun = list(self._begun.values())
        self._give_back([*(u.unit for u in begun), *(x.unit for x in self._waiting)])
        self._waiting.clear()
        for u in begun:
            self._drop(u)
        if begun:
            await asyncio.wait([u.work for u in begun if u.work is not None], timeout=CANCEL_S)

    # Beginning and ending -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        while self._waiting and len(self._begun) < self._limit:
            message = self._waiting.popleft()
            x = message.inputs[0]
            account = AsyncUnit(self._stage, self._worker.documents[self._step])
            u = UnitInFlight(message.unit, x, account, self._notes.begin(message.unit), x.skip)
            self._begun[u.unit] = u
            self._start_clock(u)
            u.work = asyncio.get_running_loop().create_task(self._run(u), name=f"task {x.label}")

    def _start_clock(self, u: UnitInFlight) -> None:
        u.since = time.perf_counter_ns()
        if not self._running:
            self._busy_since = u.since
        self._running += 1
        self._start_timer(u)

    def _start_timer(self, u: UnitInFlight) -> None:
        if self._timeout_s is not None:
            if u.timer is not None:
                u.timer.cancel()
            u.timer = asyncio.get_running_loop().call_later(self._timeout_s, self._time_out, u)

    def _stop_clock(self, u: UnitInFlight) -> None:
        """Count for a unit that ends or is suspended the time that the worker was busy since the last one did."""
        if u.timer is not None:
            u.timer.cancel()
        now = time.perf_counter_ns()
        u.account.counts[0].busy_ns += now - self._busy_since
        self._busy_since = now
        self._running -= 1

    def _time_out(self, u: UnitInFlight) -> None:
        u.timed_out = True
        if u.work is not None:
            u.work.cancel()

    def _drop(self, u: UnitInFlight) -> None:
        u.dropped = True
        if u.work is not None:
            u.work.cancel()

    def _give_back(self, units: list[int]) -> None:
        if units:
            self._send(wp.Returned(units))

    def _send(self, message: wp.FromWorker) -> None:
        self._worker.outbox.append(message)
        self._changed()

    async def _run(self, u: UnitInFlight) -> None:
        error: BaseException | None = None
        try:
            await self._make(u)
        except BaseException as raised:  # all that a stage raises is a StageError; the rest ends this unit too
            error = raised
        if not u.is_suspended:
            self._stop_clock(u)
        del self._begun[u.unit]
        if u.note:
            self._ended_notes.append(u.note)
        if u.timed_out:
            limit = f"{self._timeout_s:g}"
            error = StageError(0, f"TimeoutError: '{self._stage.name}' took longer than timeout_s={limit}: cancelled")
        if u.dropped:
            self._free(u)
            self._changed()  # its note is to be forgotten
        elif error is not None:
            self._fail(u, stage_error(0, error))
        else:
            self._send(wp.Finished(u.unit, us_since(u.since), *self._accounts(u), tuple(u.outputs)))
        self._begin()

    def _fail(self, u: UnitInFlight, error: StageError) -> None:
        self._free(u)
        if error.ends_run:
            self._worker.outbox.append(wp.RunBroken(error.error))
        counts = u.account.take_counts()
        self._send(wp.Failed(u.unit, error.stage, error.error, error.detail, us_since(u.since), counts))

    def _free(self, u: UnitInFlight) -> None:
        for x in u.outputs:
            if x.payload is None and x.length:
                self._worker.free(x.offset, x.length)

    # Outputs ------------------------------------------------------------------------------------------------------

    async def _make(self, u: UnitInFlight) -> None:
        """Make the outputs of a unit. Each time a chunk is full, report it and wait to be resumed."""
        worker, x = self._worker, u.input
        payload = x.payload if x.payload is not None else worker.get(x)
        task = load_task(x.label, payload, x.start, x.stop)
        last = self._step == len(worker.steps) - 1
        made = 0
        async with aclosing(u.account.outputs(task)) as outputs:
            async for output in outputs:
                if not self._is_due(u):
                    self._start_timer(u)  # an attempt may take as long for each chunk as the one before
                    continue
                u.outputs.append(worker.output(u.account, x.task, output, last))
                made += u.outputs[-1].length
                if x.wanted and u.position > x.wanted[-1]:
                    return
                if self._streams and self._is_full(u, made):
                    self._suspend(u)
                    await u.resumed.wait()
                    made = 0

    def _is_full(self, u: UnitInFlight, made: int) -> bool:
        """Whether a chunk is full, or has taken long enough."""
        is_large = made >= self._worker.limits.chunk or len(u.outputs) >= CHUNK_OUTPUTS
        return is_large or time.perf_counter_ns() - u.since > CHUNK_NS

    def _suspend(self, u: UnitInFlight) -> None:
        self._stop_clock(u)
        u.is_suspended = True
        u.resumed.clear()
        if u.note:
            self._ended_notes.append(u.note)
            u.note = 0
        outputs, u.outputs = tuple(u.outputs), []
        self._send(wp.Emitted(u.unit, us_since(u.since), *self._accounts(u), outputs))

    @staticmethod
    def _is_due(u: UnitInFlight) -> bool:
        """Whether the next output is to be delivered."""
        if u.input.wanted:
            u.position += 1
            return u.position - 1 in u.input.wanted
        if u.skip:
            u.skip -= 1
            u.account.reset_counts()
            return False
        return True

    @staticmethod
    def _accounts(u: UnitInFlight) -> tuple[wp.Counts, wp.BlockEntries]:
        """The account since the last report. That of a unit that makes lost data again was reported before."""
        if u.input.wanted:
            u.account.reset_counts()
        return u.account.take_counts(), u.account.take_entries()
