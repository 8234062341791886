"""A worker as a Ray actor: each call brings a batch of messages and returns their reports."""

from __future__ import annotations

import faulthandler
import mmap
import os
import pickle
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from gristmill.backends.accounting import Documents
from gristmill.backends.engine import protocol as wp
from gristmill.backends.engine.begun import BEGUN_BYTES
from gristmill.backends.engine.names import learn_names
from gristmill.backends.engine.worker import Limits, Stages, Worker, WorkerIdentity, run_node_setup
from gristmill.backends.stage_errors import Interrupt, details, one_line

INTERRUPT = signal.SIGUSR1
"""Interrupts the unit of a worker. Ray itself uses the usual signals."""
SLOTS = 4096
CRASH_BYTES = 4096
"""The space for a worker's exit message, after the slots of all workers."""
BEGUN_AT = SLOTS * (wp.SLOT_BYTES + CRASH_BYTES)
"""Where the notes of workers with several units in flight begin."""
NOTES_BYTES = BEGUN_AT + SLOTS * BEGUN_BYTES

Reply = tuple[wp.Plain, list[list[Any]] | None]
"""Encoded messages of a worker, and the payloads that do not fit into messages."""


@dataclass(frozen=True)
class Notes:
    """The file in which the workers of a node note what they do: a descriptor of the agent, without a name."""

    pid: int
    fd: int

    def open(self) -> int:
        return os.open(f"/proc/{self.pid}/fd/{self.fd}", os.O_RDWR | os.O_CLOEXEC)


def load_steps(pickled: bytes, path: Sequence[str]) -> tuple[list[Stages], list[Documents | None]]:
    """Load the stages of a run in a process on any node. It looks for modules where the driver does."""
    sys.path += [p for p in path if p not in sys.path and os.path.isdir(p)]
    stages, classes, documents = pickle.loads(pickled)
    learn_names(classes)
    return stages, documents


class RayWorker(Worker):
    """Returns payloads that are too large for messages with the reply, as one object that belongs to the driver."""

    def __init__(
        self,
        setting: WorkerIdentity,
        steps: list[Stages],
        documents: list[Documents | None],
        limits: Limits,
        notes: int,
    ) -> None:
        super().__init__(setting, mmap.mmap(notes, SLOTS * wp.SLOT_BYTES), steps, documents, limits)
        self.given: Sequence[Any] = ()
        """Payloads that came with the call."""
        self.made: list[list[Any]] = []
        self.active = False
        """It may be interrupted now."""
        self.mark()

    def serve(self, messages: Iterable[wp.ToWorker], given: Sequence[Any]) -> None:
        """Process the messages of a call. Each call comes after the reply to the one before."""
        self.given = given
        self.mark()
        try:
            self.active = True
            try:
                for message in messages:
                    if self.stopping:
                        break
                    self.take(message)
            finally:
                self.active = False
        except Interrupt:
            pass
        finally:
            self.given = ()

    def interrupt(self, signum: int, frame: FrameType | None) -> None:
        self.stopping = True
        if self.active:
            self.active = False
            raise Interrupt

    def reply(self) -> Reply:
        """Return the messages since the last reply."""
        messages, self.outbox = self.outbox, []
        made, self.made = self.made, []
        return wp.FROM_WORKER.encode(messages), made or None

    def send_progress(self, message: wp.UnitProgress) -> None:
        """Send nothing: a worker reports at the end of a call."""

    def put(self, parts: list[Any]) -> tuple[int, int]:
        # A copy: the stage may use its buffers again before the call returns.
        data = np.frombuffer(b"".join(parts), np.uint8)
        self.made.append([data])
        return len(self.made) - 1, data.nbytes

    def get(self, x: wp.TaskInput) -> bytearray:
        return to_bytes(self.given[x.source][x.offset])

    def free(self, offset: int, length: int) -> None:
        self.made[offset] = []


class LoadedActor:
    """An actor that loads the stages of a run."""

    def __init__(self, setting: WorkerIdentity, notes: Notes) -> None:
        self.setting = setting
        self.notes = notes

    def load(self, pickled: bytes, path: list[str]) -> tuple[int, list[Stages], list[Documents | None]]:
        """Prepare the process. Return the file of the notes, the stages, and what they need to account for."""
        import ray

        setting = self.setting
        fd = self.notes.open()
        self._note_exit(fd)
        steps, documents = load_steps(pickled, path)
        if not setting.gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        else:
            setting.gpus = tuple(int(x) for x in ray.get_gpu_ids() if str(x).isdigit()) or setting.gpus
        return fd, steps, documents

    def _note_exit(self, fd: int) -> None:
        """Have a crash leave an exit message, which distinguishes it from a kill."""
        place = SLOTS * wp.SLOT_BYTES + self.setting.slot * CRASH_BYTES
        os.pwrite(fd, bytes(CRASH_BYTES), place)
        message = self.notes.open()  # with its own position
        os.lseek(message, place, os.SEEK_SET)
        faulthandler.enable(message, all_threads=False)
        leave, pid = os._exit, os.getpid()

        def note(status: int) -> None:
            if os.getpid() == pid:
                os.write(message, f"exit code {status}".encode())
            leave(status)

        os._exit = note  # type: ignore[assignment]


class WorkerActor(LoadedActor):
    """The actor: single-threaded, so that stages run in the main thread of their process."""

    def __init__(self, setting: WorkerIdentity, notes: Notes) -> None:
        super().__init__(setting, notes)
        self.worker: RayWorker | None = None
        signal.signal(INTERRUPT, self._interrupt)

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        if self.worker is not None:
            self.worker.interrupt(signum, frame)

    def hello(self) -> int:
        """Return the pid of this process."""
        return os.getpid()

    def begin(self, pickled: bytes, path: list[str], limits: Limits) -> tuple[wp.Plain, str]:
        """Load the stages and set up. Return the messages, and why the stages could not be loaded."""
        try:
            fd, steps, documents = self.load(pickled, path)
        except BaseException as error:  # loading stages runs the user's code; the driver reports the error
            return [], f"{one_line(error)}\n{details(error)}"
        self.worker = worker = RayWorker(self.setting, steps, documents, limits, fd)
        try:
            worker.active = True
            try:
                worker.start()
            finally:
                worker.active = False
        except Interrupt:
            pass
        if worker.stopping:
            worker.leave()
        return worker.reply()[0], ""

    def take(self, messages: wp.Plain, *given: Any) -> Reply:
        worker = self.worker
        assert worker is not None
        was_stopping = worker.stopping
        worker.serve(wp.TO_WORKER.decode(messages), given)
        if worker.stopping and not was_stopping and any(isinstance(x, wp.StepNotReady) for x in worker.outbox):
            worker.leave()
        return worker.reply()

    def leave(self) -> wp.Plain:
        """Tear down. Nothing is done after that."""
        worker = self.worker
        if worker is None:
            return wp.FROM_WORKER.encode([wp.Left([], [])])
        worker.stopping = True
        worker.leave()
        return worker.reply()[0]


def set_up_node(pickled: bytes, path: list[str], step: int, node: str) -> str:
    """Run a step's `setup_on_node` as a Ray task on the node. Return the error, if there is one."""
    try:
        steps, _ = load_steps(pickled, path)
        return run_node_setup(steps[step], node)
    except BaseException as error:  # loading stages runs the user's code
        return f"{one_line(error)}\n{details(error)}".strip()


def to_bytes(parts: Sequence[Any]) -> bytearray:
    """Return a private, writable copy of a payload, which lies in the object store as arrays of bytes."""
    data = bytearray(sum(part.nbytes for part in parts))
    position = 0
    for part in parts:
        data[position : position + part.nbytes] = part.data
        position += part.nbytes
    return data
