"""A worker process of the local executor with several units in flight: its event loop also reads the socket."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable
from types import FrameType
from typing import Any

from gristmill.backends.engine import protocol as wp
from gristmill.backends.engine.begun import BEGUN_BYTES, BegunNotes
from gristmill.backends.engine.in_flight import InFlightMessage, UnitsInFlight
from gristmill.backends.local.arena import ArenaWriter
from gristmill.backends.local.worker import LocalWorker
from gristmill.backends.stage_errors import Interrupt


class LocalInFlightWorker(LocalWorker):
    """Serves one step with an asynchronous stage. Its notes are at the beginning of its arena."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        fd = self.arena.fd
        self.arena = ArenaWriter(fd, self.limits.retain, BEGUN_BYTES)
        self.notes = BegunNotes(mmap.mmap(fd, BEGUN_BYTES))
        self.units: UnitsInFlight | None = None
        self.end: asyncio.Future[None] | None = None
        """Set when it leaves, or cannot work any more."""
        self.is_report_due = False
        self.sent_notes: list[int] = []
        """Of units whose report the socket has perhaps not taken yet."""

    def loop(self) -> None:
        self.start()
        self.report()
        if not self.stopping:
            # The loop is not closed: that would wait for ever for units that cannot be cancelled.
            with self._connection():
                asyncio.new_event_loop().run_until_complete(self._work())

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        self.end = loop.create_future()
        timeout_s = self.timeout_s(self.setting.step)
        self.units = UnitsInFlight(self, self.setting.in_flight, timeout_s, self.notes, self._report_soon)
        sock = self.channel.sock
        sock.setblocking(False)
        loop.add_reader(sock, self._guarded, self._receive)
        try:
            await self.end
        finally:
            loop.remove_reader(sock)
            loop.remove_writer(sock)
            await self.units.cancel()
            sock.setblocking(True)
            self.channel.flush()

    def _receive(self) -> None:
        for message in self.channel.receive():
            self.take(message)
        if self.stopping:
            self._finish(None)

    def take(self, message: wp.ToWorker) -> None:
        if isinstance(message, InFlightMessage):
            assert self.units is not None
            self.units.take(message)
        else:
            super().take(message)

    def interrupt(self, signum: int, frame: FrameType | None) -> None:
        """Leave whatever is being done, once: in the event loop, if it runs already."""
        if self.end is None:
            super().interrupt(signum, frame)
        elif not self.leaving:
            self.leaving = True
            self.end.get_loop().call_soon_threadsafe(self._finish, Interrupt())

    def _finish(self, error: BaseException | None) -> None:
        if self.end is None or self.end.done():
            return
        if error is None:
            self.end.set_result(None)
        else:
            self.end.set_exception(error)

    def _guarded(self, call: Callable[[], None]) -> None:
        """End with the error of a callback, which the event loop would only log."""
        try:
            call()
        except Exception as error:  # above all `Closed` and `CutOff`
            self._finish(error)

    # Reports ------------------------------------------------------------------------------------------------------

    def _report_soon(self) -> None:
        """Report what ends in the same round of the event loop together."""
        if not self.is_report_due:
            self.is_report_due = True
            asyncio.get_running_loop().call_soon(self._guarded, self.report)

    def report(self) -> None:
        self.is_report_due = False
        super().report()
        if self.units is None:
            return
        self.sent_notes += self.units.take_ended()
        if not self.channel.pending:
            self._forget()
        elif not self.channel.sock.getblocking():
            asyncio.get_running_loop().add_writer(self.channel.sock, self._guarded, self._flush)

    def _flush(self) -> None:
        """Send the rest of the reports, which the socket takes now."""
        with self._connection():
            if self.channel.flush():
                asyncio.get_running_loop().remove_writer(self.channel.sock)
                self._forget()

    def _forget(self) -> None:
        assert self.units is not None
        self.units.forget(self.sent_notes)
        self.sent_notes.clear()
