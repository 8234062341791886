"""The driver's side of the processes: the supervisor, the workers it forks, and the certainty that they end."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import IO

from gristmill.backends.local.payload import new_arena
from gristmill.backends.local.protocol import SLOT_BYTES, ToSupervisor, ToWorker
from gristmill.backends.local.threads import VARIABLES
from gristmill.backends.local.wire import Channel, Message
from gristmill.backends.local.worker import Limits

_SLOTS = 4096
_MARK = "GRISTMILL_RUN"
_QUIT_S = 10.0


@dataclass
class WorkerProcess:
    """A process of the run, from the order to start it until its exit is known."""

    id: int
    step: int
    slot: int
    channel: Channel
    pid: int = 0
    arenas: set[int] = field(default_factory=set)
    """Arenas whose descriptor it has."""
    outbox: list[Message] = field(default_factory=list)
    freed: list[tuple[int, int]] = field(default_factory=list)
    """Payloads in its arena to be given back with the next message."""
    stop_by: float = 0.0
    """When it must have left, after it was told to stop."""
    said_bye: bool = False
    setup_failed: bool = False
    out_of_memory: bool = False
    stage: int = 0
    node_setup: bool = False


class Processes:
    """Starts and ends processes; knows nothing of tasks."""

    def __init__(self, on_disk: bool) -> None:
        self.mark = f"{os.getpid()}-{uuid.uuid4().hex}"
        self.on_disk = on_disk
        self.workers: dict[int, WorkerProcess] = {}
        self.arenas: dict[int, int] = {}
        """Descriptor of each worker's arena; outlives the worker while payloads in it are live."""
        slots = os.memfd_create("gristmill-slots") if hasattr(os, "memfd_create") else new_arena()
        os.ftruncate(slots, _SLOTS * SLOT_BYTES)
        self._slots_fd = slots
        self.slots = mmap.mmap(slots, _SLOTS * SLOT_BYTES)
        self._free_slots = list(range(_SLOTS))[::-1]
        self._init: Message = ()
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        _raise_descriptor_limit()
        self._spawn()

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from gristmill.backends.local.supervisor import main; "
            f"main({theirs.fileno()}, {self._slots_fd}, {os.getpid()})"
        )
        environment = {**os.environ, _MARK: self.mark, **dict.fromkeys(VARIABLES, "1")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno(), self._slots_fd],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        theirs.close()
        self.stdout, self.stderr = self.process.stdout, self.process.stderr
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
        self.control = Channel(ours)
        ours.setblocking(False)

    def load(self, steps: bytes, limits: Limits) -> None:
        """Give the supervisor the stages."""
        self._init = (ToSupervisor.INIT, list(sys.path), steps, astuple(limits))
        self.control.send([self._init])

    def restart(self) -> None:
        """After the supervisor was killed: remove what is left of its processes and start another."""
        self.process.wait()
        kill_marked(self.mark)
        self.control.close()
        self._close_output()
        self._spawn()
        self.control.send([self._init])

    def start(
        self, ident: int, step: int, cpus: float, gpus: tuple[int, ...], devices: Sequence[str], gpu_share: float
    ) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        arena = new_arena(self.on_disk)
        w = self._new(ident, step, ours)
        message = (ToSupervisor.START, ident, w.slot, step, cpus, gpus, tuple(devices), gpu_share)
        self.control.send([message], [theirs.fileno(), arena])
        # The descriptors must stay open until they are on their way.
        while not self.control.flush():
            time.sleep(0.001)
        theirs.close()
        self.arenas[ident] = arena
        return w

    def set_up_node(self, ident: int, step: int) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        w = self._new(ident, step, ours)
        w.node_setup = True
        self.control.send([(ToSupervisor.SET_UP_NODE, ident, w.slot, step)], [theirs.fileno()])
        while not self.control.flush():
            time.sleep(0.001)
        theirs.close()
        return w

    def _new(self, ident: int, step: int, sock: socket.socket) -> WorkerProcess:
        sock.setblocking(False)
        w = WorkerProcess(ident, step, self._free_slots.pop(), Channel(sock))
        self.workers[ident] = w
        return w

    def stop(self, ident: int, now: bool, grace_s: float) -> None:
        w = self.workers.get(ident)
        if w is None:
            return
        w.outbox.append((ToWorker.STOP,))
        w.stop_by = time.monotonic() + grace_s
        if now and w.pid:
            self.signal(w, signal.SIGTERM)

    def signal(self, w: WorkerProcess, number: int) -> None:
        if w.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(w.pid, number)

    def ended(self, w: WorkerProcess) -> None:
        """A worker's exit has been dealt with."""
        del self.workers[w.id]
        w.channel.close()
        self._free_slots.append(w.slot)

    def drop_arena(self, ident: int) -> None:
        """No live payload is left in the arena of a worker that is gone."""
        os.close(self.arenas.pop(ident))
        for w in self.workers.values():
            if ident in w.arenas:
                w.arenas.discard(ident)
                w.outbox.append((ToWorker.FORGET, ident))

    def close(self) -> None:
        """End everything. The supervisor kills what is left; if it is gone itself, the driver does."""
        with contextlib.suppress(OSError):
            self.control.send([(ToSupervisor.QUIT,)])
        self.control.close()
        try:
            self.process.wait(_QUIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.returncode != 0:
            kill_marked(self.mark)
        for w in list(self.workers.values()):
            w.channel.close()
        self.workers.clear()
        for fd in self.arenas.values():
            os.close(fd)
        self.arenas.clear()
        self._close_output()
        self.slots.close()
        os.close(self._slots_fd)

    def _close_output(self) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()


def kill_marked(mark: str) -> None:
    """Kill every process that carries the mark of a run in its environment."""
    wanted = f"{_MARK}={mark}".encode()
    for _ in range(50):
        found = False
        for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if wanted not in file.read().split(b"\0"):
                        continue
                os.kill(int(name), signal.SIGKILL)
                found = True
            except OSError:
                continue
        if not found:
            return
        time.sleep(0.01)


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else 65536, hard))


def describe_exit(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        try:
            return signal.Signals(os.WTERMSIG(status)).name
        except ValueError:
            return f"signal {os.WTERMSIG(status)}"
    return f"exit code {os.WEXITSTATUS(status)}"


