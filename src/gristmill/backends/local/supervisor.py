"""The supervisor: loads the stages once, forks workers from its main thread, and leaves nothing behind.

It is a fresh interpreter, so threads of the driver do no harm. Its control socket is the lifeline: when the driver is
gone, it kills every process that came from it. It is a sub-reaper, so processes that stages started and left are its
descendants too, and it runs no code of stages itself beyond loading them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import math
import mmap
import os
import pickle
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from gristmill.backends.accounting import Documents
from gristmill.backends.engine.machine import children_of, descendants_of, environment_of
from gristmill.backends.engine.names import learn_names
from gristmill.backends.engine.worker import Limits, Stages, WorkerIdentity
from gristmill.backends.local import protocol as sp
from gristmill.backends.local.wire import Channel, Closed
from gristmill.backends.local.worker import LocalWorker, set_up_node

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.5
"""How often to check that the driver lives. The control socket shows its end earlier, unless others hold it too."""


class Supervisor:
    """Carries out the driver's commands."""

    def __init__(self, control: socket.socket, slots: mmap.mmap, driver: int) -> None:
        self.channel: Channel[sp.FromSupervisor, sp.ToSupervisor] = Channel(
            control, sp.FROM_SUPERVISOR, sp.TO_SUPERVISOR
        )
        self.slots = slots
        self.driver = driver
        self.pid = os.getpid()
        self.steps: list[Stages] = []
        self.documents: list[Documents | None] = []
        self.limits = Limits(0, 0, False, 0)
        self.children: dict[int, int] = {}
        """Worker by pid."""
        self.unnamed: dict[int, float] = {}
        """When orphans whose environment names no worker were first seen."""
        self.worker_ended = self.node_setup_ended = -math.inf
        self.quitting = False

    def serve(self) -> None:
        """Carry out commands until the last one, or until the driver is gone."""
        wake, write = os.pipe()
        os.set_blocking(write, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        poll.register(wake, select.POLLIN)
        try:
            while not self.quitting and os.getppid() == self.driver:
                for fd, _ in poll.poll(_LOOK_S * 1000):
                    if fd == wake:
                        with contextlib.suppress(BlockingIOError):
                            os.read(wake, 4096)
                    else:
                        for message in self.channel.receive():
                            self.take(message)
                self.reap()
        except Closed:
            pass
        finally:
            kill_descendants()

    def take(self, message: sp.ToSupervisor) -> None:
        match message:
            case sp.ForkWorker():
                setting = WorkerIdentity(*message.identity)
                sock = socket.socket(fileno=self.channel.fds.popleft())
                arena = self.channel.fds.popleft()
                parts = self.slots, self.steps, self.documents, self.limits
                self.fork(setting.worker, lambda: make_worker(setting, sock, arena, *parts).main())
                sock.close()
                os.close(arena)
            case sp.ForkNodeSetup(ident, step):
                sock = socket.socket(fileno=self.channel.fds.popleft())
                self.fork(ident, lambda: set_up_node(step, sock, self.steps))
                sock.close()
            case sp.LoadStages():
                self.load(message)
            case sp.ImportModules(modules):
                import_ahead(modules)
            case sp.EndRun():
                self.clear()
            case sp.Quit():
                self.quitting = True

    def clear(self) -> None:
        """Forget a run, as if the next one were the first."""
        kill_descendants()
        self.steps, self.documents = [], []
        gc.unfreeze()  # it may be in a cycle
        self.unnamed = {}
        self.worker_ended = self.node_setup_ended = -math.inf

    def load(self, x: sp.LoadStages) -> None:
        sys.path[:] = x.path
        self.limits = Limits(*x.limits)
        error = ""
        signal.signal(signal.SIGALRM, self.check_driver)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
        try:
            self.steps, classes, self.documents = pickle.loads(x.steps)
            learn_names(classes)
            for stages in self.steps:
                for stage in stages:
                    stage.preload()
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                error = "a stage touches CUDA while it is loaded; do that in setup(), which runs in the worker"
        except ImportError as missing:  # a message with what to install needs no traceback
            error = str(missing) if "pip install" in str(missing) else traceback.format_exc(limit=-3).strip()
        except BaseException:  # loading runs the user's imports; whatever they raise, `SystemExit` too, is reported
            error = traceback.format_exc(limit=-3).strip()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        gc.collect()
        gc.freeze()  # what is loaded stays: workers need not look at it again, and so share its pages for longer
        self.channel.send([sp.Loaded(error)])
        if error:
            self.quitting = True

    def check_driver(self, signum: int, frame: FrameType | None) -> None:
        """End if the driver was killed while stages are imported, which may take long."""
        if os.getppid() != self.driver:
            kill_descendants()
            os._exit(1)

    def fork(self, ident: int, work: Callable[[], None]) -> None:
        if self.quitting:
            return
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError as error:
            self.channel.send([sp.CannotFork(str(error))])
            return
        if pid == 0:
            self.become(work)
        self.children[pid] = ident
        self.channel.send([sp.Forked(ident, pid)])

    def become(self, work: Callable[[], None]) -> None:
        """Turn this forked child into a worker. Never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with_parent(self.pid)
            self.channel.close()
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write("500")
            work()
            status = 0
        except BaseException:  # the last frame of a process: no caller can handle it
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def reap(self) -> None:
        """Report which workers have ended, and kill the processes that they left.

        An orphan becomes a child of the supervisor. If it was started as a program, its environment names the worker
        that started it: it is killed when that worker is gone, or with the run if `setup_on_node` started it. If it
        was only forked, it is killed if a worker ended about when it was first seen and no `setup_on_node` did. Other
        orphans, such as programs with another environment, are killed with the run.
        """
        now = time.monotonic()
        ended: list[sp.Exited] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            ident = self.children.pop(pid, None)
            if ident is not None:
                ended.append(sp.Exited(ident, status))
                if ident >= 0:
                    self.worker_ended = now
                else:
                    self.node_setup_ended = now
        if ended:
            self.channel.send(ended)
        workers = {str(ident) for ident in self.children.values()} | {sp.NODE_MARK}
        orphans = {pid: self.owner(pid) for pid in children_of(self.pid) if pid not in self.children}
        self.unnamed = {pid: self.unnamed.get(pid, now) for pid, owner in orphans.items() if owner == ""}
        for pid, owner in orphans.items():
            if owner and owner not in workers:
                _kill(pid)
        for pid, seen in self.unnamed.items():
            if abs(self.worker_ended - seen) < _LOOK_S * 2 <= abs(self.node_setup_ended - seen):
                _kill(pid)

    def owner(self, pid: int) -> str | None:
        """The worker that started a program of this run; empty if it was only forked, None if that is not known."""
        variables = environment_of(pid)
        if f"{sp.RUN_MARK}={os.environ.get(sp.RUN_MARK)}".encode() not in variables:
            return None  # also while it is being replaced by another program
        prefix = f"{sp.WORKER_MARK}=".encode()
        return next((x.removeprefix(prefix).decode() for x in variables if x.startswith(prefix)), "")


def make_worker(setting: WorkerIdentity, *parts: Any) -> LocalWorker:
    if not setting.in_flight:
        return LocalWorker(setting, *parts)
    from gristmill.backends.local.in_flight import LocalInFlightWorker  # asyncio takes a while to import

    return LocalInFlightWorker(setting, *parts)


def die_with_parent(parent: int) -> None:
    """Have the system kill this process when the one that forked it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def kill_descendants() -> None:
    """Kill all that came from this process, until nothing is left."""
    for _ in range(500):
        found = descendants_of(os.getpid())
        if not found:
            return
        for pid in found:
            _kill(pid)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        select.select([], [], [], 0.01)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _ignore(signum: int, frame: FrameType | None) -> None:
    """Only wakes the loop."""


def import_ahead(modules: Sequence[str]) -> None:
    """Import what stages will need while the driver still plans. Errors are reported later, by loading the stages."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def main(control: int, slots: int, driver: int, modules: Sequence[str] = ()) -> None:
    """The whole life of the supervisor process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # The driver handles Ctrl-C. Not SIG_IGN: programs that stages start would inherit that.
    signal.signal(signal.SIGINT, _ignore)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    page = mmap.mmap(slots, 0)
    os.close(slots)
    os.set_inheritable(control, False)
    import_ahead(modules)
    Supervisor(socket.socket(fileno=control), page, driver).serve()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)  # the driver waits, and an orderly end of the interpreter takes a while
