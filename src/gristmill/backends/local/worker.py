"""A worker process of the local executor: messages over a socket, payloads in an arena."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Any

from gristmill.backends.accounting import Documents
from gristmill.backends.engine import protocol as wp
from gristmill.backends.engine.worker import Limits, Stages, Worker, WorkerIdentity, run_node_setup
from gristmill.backends.local.arena import ArenaWriter, read_arena
from gristmill.backends.local.protocol import CUT_OFF_STATUS, NODE_MARK, WORKER_MARK
from gristmill.backends.local.wire import Channel, Closed
from gristmill.backends.stage_errors import Interrupt


class CutOff(Exception):
    """The connection to the driver cannot be used any more."""


class LocalWorker(Worker):
    """Works until it is stopped or interrupted, and then tears down."""

    def __init__(
        self,
        setting: WorkerIdentity,
        sock: socket.socket,
        arena: int,
        slots: mmap.mmap,
        steps: list[Stages],
        documents: list[Documents | None],
        limits: Limits,
    ) -> None:
        super().__init__(setting, slots, steps, documents, limits)
        self.channel: Channel[wp.FromWorker, wp.ToWorker] = Channel(sock, wp.FROM_WORKER, wp.TO_WORKER)
        self.arena = ArenaWriter(arena, limits.retain)
        self.arenas: dict[int, int] = {}
        self.inbox: deque[wp.ToWorker] = deque()
        self.sending = False
        self.interrupted = False
        """While it was sending."""
        self.leaving = False
        self.cut_off = False
        """A stage closed its connection to the driver."""

    def main(self) -> None:
        """Work until stopped. Called in a freshly forked process."""
        os.environ[WORKER_MARK] = str(self.setting.worker)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self.setting.devices)
        try:
            self.serve()
        except CutOff:
            with contextlib.suppress(OSError, ValueError):  # those may be closed too
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(CUT_OFF_STATUS)

    def serve(self) -> None:
        """Work until stopped; then, whatever happened, tear down."""
        try:
            try:
                signal.signal(signal.SIGTERM, self.interrupt)
                self.loop()
            finally:
                self.leaving = True
        except (Interrupt, Closed):
            pass
        finally:
            self.leave()

    def interrupt(self, signum: int, frame: FrameType | None) -> None:
        """Leave whatever is being done, once, but not in the middle of a message: the next could not be read."""
        if self.leaving:
            return
        self.leaving = True
        if self.sending:
            self.interrupted = True
        else:
            raise Interrupt

    def loop(self) -> None:
        self.start()
        while not self.stopping:
            if not self.inbox:
                self.report()
                with self._connection():
                    self.inbox.extend(self.channel.receive())
            self.take(self.inbox.popleft())

    def leave(self) -> None:
        super().leave()
        if not self.cut_off:
            with contextlib.suppress(Interrupt):
                self.report()

    def take(self, message: wp.ToWorker) -> None:
        match message:
            case wp.AddArena(arena):
                self.arenas[arena] = self.channel.fds.popleft()
            case wp.DropArena(arena):
                os.close(self.arenas.pop(arena))
            case wp.FreePayloads(places):
                for place in places:
                    self.arena.free(*place)
            case _:
                super().take(message)

    def report(self) -> None:
        if self.outbox:
            self.sending = True
            with self._connection():
                self.channel.send(self.outbox)
            self.outbox = []
            self.mark()
            self._end_sending()
        self.reported_at = time.perf_counter_ns()

    def send_progress(self, message: wp.UnitProgress) -> None:
        self.sending = True
        with contextlib.suppress(OSError):  # a stage closed the connection: the next report finds out
            self.channel.send([message])
        self._end_sending()

    def _end_sending(self) -> None:
        """Catch up on an interrupt that came in the middle of a message."""
        self.sending = False
        if self.interrupted:
            self.interrupted = False
            raise Interrupt

    @contextlib.contextmanager
    def _connection(self) -> Iterator[None]:
        """Raise `CutOff` if the connection to the driver is closed, which only a stage can have done."""
        try:
            yield
        except OSError as error:
            self.cut_off = self.leaving = True
            raise CutOff from error

    def put(self, parts: list[Any]) -> tuple[int, int]:
        return self.arena.write(parts)

    def get(self, x: wp.TaskInput) -> memoryview:
        return read_arena(self.arenas[x.source], x.offset, x.length)

    def free(self, offset: int, length: int) -> None:
        self.arena.free(offset, length)


def set_up_node(step: int, sock: socket.socket, steps: list[Stages]) -> None:
    """Run a step's `setup_on_node` and report it. Called in a freshly forked process."""
    os.environ[WORKER_MARK] = NODE_MARK
    error = run_node_setup(steps[step], "local")
    Channel(sock, wp.FROM_WORKER, wp.TO_WORKER).send([wp.NodeReady(step, error)])
