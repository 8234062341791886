"""The driver's side of the processes: the supervisor and the workers that it forks. All of them end with the run."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field

from gristmill.backends.engine import protocol as wp
from gristmill.backends.engine.begun import BEGUN_BYTES, read_begun
from gristmill.backends.engine.library_limits import VARIABLES
from gristmill.backends.engine.machine import environment_of
from gristmill.backends.engine.worker import Limits
from gristmill.backends.local import protocol as sp
from gristmill.backends.local.arena import new_arena
from gristmill.backends.local.printing import Printer
from gristmill.backends.local.wire import Channel
from gristmill.errors import PipelineError, out_of_space

_SLOTS = 4096
_QUIT_S = 10.0


@dataclass(eq=False, kw_only=True)
class WorkerProcess(wp.WorkerHandle):
    """A process of the run."""

    channel: Channel[wp.ToWorker, wp.FromWorker]
    arenas: set[int] = field(default_factory=set)
    """Arenas whose descriptor it has."""
    freed: list[wp.Place] = field(default_factory=list)
    """Payloads in its arena to be given back with the next message."""
    stop_now: bool = False
    """It is to stop in the middle of its unit."""
    out_of_memory: bool = False
    closed_at: float = 0.0
    """When its end of the connection was closed, though it has not exited yet."""
    cut_off: bool = False
    """It was killed because it stayed after that."""
    node_setup: bool = False


class Processes:
    """Starts and ends processes; knows nothing of tasks.

    The supervisor is started at once and imports ``modules``; the stages come with `load`. It can serve several runs,
    one after the other: each ends with `clear`, the last with `close`.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self.mark = f"{os.getpid()}-{uuid.uuid4().hex}"
        self.on_disk = False
        self.closed = False
        self.is_clear = True
        """Whether it waits for a run."""
        self._modules = list(modules)
        self.workers: dict[int, WorkerProcess] = {}
        self.arenas: dict[int, int] = {}
        """Descriptor of each worker's arena; outlives the worker while payloads in it are live."""
        self._path = [str(p) for p in sys.path]
        self._slots_fd = _above_stdio(new_arena())
        try:
            os.ftruncate(self._slots_fd, _SLOTS * wp.SLOT_BYTES)
        except OSError as error:
            os.close(self._slots_fd)
            raise PipelineError(str(out_of_space("memory that processes share", error) or error)) from None
        self.slots = mmap.mmap(self._slots_fd, _SLOTS * wp.SLOT_BYTES)
        self._free_slots = list(range(_SLOTS))[::-1]
        try:
            self._spawn()
        except OSError as error:
            self.slots.close()
            os.close(self._slots_fd)
            raise PipelineError(f"a process cannot be started: {error}") from error

    def ahead(self, modules: Sequence[str]) -> None:
        """Have the supervisor import what the next run needs."""
        self.control.send([sp.ImportModules(list(modules))])

    def load(self, on_disk: bool, steps: bytes, limits: Limits) -> None:
        """Have the supervisor load the stages. Payloads are then ``on_disk`` or in memory."""
        self.on_disk = on_disk
        self.is_clear = False
        self._path = [str(p) for p in sys.path]
        self._load = sp.LoadStages(self._path, steps, astuple(limits))
        self.control.send([self._load])

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        theirs = socket.socket(fileno=_above_stdio(theirs.detach()))
        code = (
            f"import sys; sys.path[:] = {self._path!r}; from gristmill.backends.local.supervisor import main; "
            f"main({theirs.fileno()}, {self._slots_fd}, {os.getpid()}, {self._modules!r})"
        )
        environment = {**os.environ, sp.RUN_MARK: self.mark, **dict.fromkeys(VARIABLES, "1")}
        environment.pop(sp.WORKER_MARK, None)  # a stage may run a pipeline
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=[theirs.fileno(), self._slots_fd],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C in the terminal is for the driver
            )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.printers = [Printer(self.process.stdout, "stdout"), Printer(self.process.stderr, "stderr")]
        ours.setblocking(False)
        self.control: Channel[sp.ToSupervisor, sp.FromSupervisor] = Channel(ours, sp.TO_SUPERVISOR, sp.FROM_SUPERVISOR)

    def end_supervisor(self) -> int:
        """Make sure that a supervisor that closed its connection is gone, with all its processes; its exit code."""
        self.control.close()
        try:
            code = self.process.wait(_QUIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if code != 0:
            kill_marked(self.mark)
        for printer in self.printers:
            printer.finish()
        return code

    def restart(self) -> None:
        """Start another supervisor after `end_supervisor`, with the same stages."""
        self._spawn()
        self.control.send([self._load])

    def start(
        self,
        ident: int,
        step: int,
        cpus: float,
        gpus: tuple[int, ...],
        devices: Sequence[str],
        gpu_share: float,
        in_flight: int = 0,
    ) -> WorkerProcess:
        w, theirs = self._new(ident, step)
        w.in_flight = in_flight
        arena = self.arenas[ident] = new_arena(self.on_disk)
        if in_flight:
            os.ftruncate(arena, BEGUN_BYTES)
        message = sp.ForkWorker((ident, w.slot, step, cpus, gpus, tuple(devices), gpu_share, "local", in_flight))
        with theirs:
            self.control.send([message], [theirs.fileno(), arena])
        return w

    def begun_in(self, w: WorkerProcess) -> tuple[int, ...] | None:
        """Return the units that a worker with several in flight has noted as begun; None if that is not known."""
        return read_begun(os.pread(self.arenas[w.id], BEGUN_BYTES, 0)) if w.in_flight else None

    def set_up_node(self, ident: int, step: int) -> WorkerProcess:
        w, theirs = self._new(ident, step)
        w.node_setup = True
        with theirs:
            self.control.send([sp.ForkNodeSetup(ident, step)], [theirs.fileno()])
        return w

    def _new(self, ident: int, step: int) -> tuple[WorkerProcess, socket.socket]:
        if not self._free_slots:
            raise PipelineError(
                f"a run has at most {_SLOTS} workers at once, and one more is wanted: ask for fewer with num_workers() "
                "or give each more CPUs"
            )
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        channel: Channel[wp.ToWorker, wp.FromWorker] = Channel(ours, wp.TO_WORKER, wp.FROM_WORKER)
        slot, now = self._free_slots.pop(), time.perf_counter_ns()
        w = self.workers[ident] = WorkerProcess(id=ident, step=step, slot=slot, channel=channel, ordered_ns=now)
        wp.mark(self.slots, w.slot)  # the worker that had the slot before may have died with a task in it
        return w, theirs

    def show_arena(self, w: WorkerProcess, arena: int, fd: int) -> None:
        """Send a worker the descriptor of an arena, before any later message."""
        if w.outbox:
            w.channel.send(w.outbox)
            w.outbox = []
        w.channel.send([wp.AddArena(arena)], [fd])
        w.arenas.add(arena)

    def stop(self, ident: int, now: bool, grace_s: float) -> None:
        w = self.workers.get(ident)
        if w is None:
            return
        w.outbox.append(wp.Leave())
        w.ordered_ns = time.perf_counter_ns()
        w.stop_by = time.monotonic() + grace_s
        w.stop_now = now
        if now:
            self.signal(w, signal.SIGTERM)

    def started(self, ident: int, pid: int) -> None:
        """A process exists now; do what could not be done to it before."""
        w = self.workers.get(ident)
        if w is not None:
            w.pid = pid
            if w.stop_now:
                self.signal(w, signal.SIGTERM)

    def signal(self, w: WorkerProcess, number: int) -> None:
        if w.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(w.pid, number)

    def ended(self, w: WorkerProcess) -> None:
        """Forget a worker whose exit has been handled."""
        del self.workers[w.id]
        w.channel.close()
        self._free_slots.append(w.slot)

    def drop_arena(self, ident: int) -> None:
        """Close the arena of a worker that is gone. No live payload is left in it."""
        os.close(self.arenas.pop(ident))
        for w in self.workers.values():
            if ident in w.arenas:
                w.arenas.discard(ident)
                w.outbox.append(wp.DropArena(ident))

    def clear(self) -> None:
        """End a run: what it left is removed, and the supervisor waits for the next run."""
        if self.closed or self.workers or self.control.fileno() < 0:
            self.close()  # the run did not come to its end
            return
        self.control.send([sp.EndRun()])
        for printer in self.printers:
            printer.flush()
        self._drop_arenas()
        self.is_clear = True

    def _drop_arenas(self) -> None:
        for fd in self.arenas.values():
            os.close(fd)
        self.arenas.clear()

    def close(self) -> None:
        """End all processes, once. The supervisor kills what is left; if it is gone itself, the driver does."""
        if self.closed:
            return
        self.closed = True
        self.is_clear = False
        if self.control.fileno() >= 0:
            self.control.send([sp.Quit()])
            self.end_supervisor()
        for w in self.workers.values():
            w.channel.close()
        self.workers.clear()
        self._drop_arenas()
        self.slots.close()
        os.close(self._slots_fd)


def kill_marked(run: str) -> None:
    """Kill every process that carries the mark of a run in its environment."""
    wanted = f"{sp.RUN_MARK}={run}".encode()
    for _ in range(50):
        found = False
        for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
            if not name.isdigit() or int(name) == os.getpid():
                continue
            if wanted in environment_of(int(name)):
                with contextlib.suppress(OSError):
                    os.kill(int(name), signal.SIGKILL)
                    found = True
        if not found:
            return
        time.sleep(0.01)


def _above_stdio(fd: int) -> int:
    """The same with a number above 2, which a driver with closed standard streams may give to anything."""
    if fd > 2:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return moved


def describe_exit(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        try:
            return signal.Signals(os.WTERMSIG(status)).name
        except ValueError:
            return f"signal {os.WTERMSIG(status)}"
    return f"exit code {os.WEXITSTATUS(status)}"


def describe_code(code: int) -> str:
    """An exit code as `subprocess` gives it, in words."""
    return describe_exit(-code if code < 0 else code << 8)
