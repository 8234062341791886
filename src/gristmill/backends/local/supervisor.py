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

from gristmill.backends.engine.names import learn_names
from gristmill.backends.engine.proc import children_of, descendants_of, environment_of
from gristmill.backends.engine.protocol import Message
from gristmill.backends.engine.worker import Limits, Setting, Stages
from gristmill.backends.local import worker
from gristmill.backends.local.protocol import NODE_MARK, RUN_MARK, WORKER_MARK, FromSupervisor, ToSupervisor
from gristmill.backends.local.wire import Channel, Closed
from gristmill.backends.step_runner import Documents

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.5
"""How often to see whether the driver lives: the control socket tells sooner, unless somebody else holds it too."""


class Supervisor:
    """Follows the driver's orders."""

    def __init__(self, control: socket.socket, slots: mmap.mmap, driver: int) -> None:
        self.channel = Channel(control)
        self.slots = slots
        self.driver = driver
        self.pid = os.getpid()
        self.steps: list[Stages] = []
        self.documents: list[Documents | None] = []
        self.limits = Limits(0, 0, False, 0)
        self.children: dict[int, int] = {}
        """Worker by pid."""
        self.unnamed: dict[int, float] = {}
        """When orphans that name nobody were first seen."""
        self.worker_ended = self.node_setup_ended = -math.inf
        self.quitting = False

    def serve(self) -> None:
        """Follow the driver's orders until it says so or is gone."""
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

    def take(self, message: Message) -> None:
        kind = message[0]
        if kind == ToSupervisor.START:
            setting = Setting(*message[1:])
            sock = socket.socket(fileno=self.channel.fds.popleft())
            arena = self.channel.fds.popleft()
            self.fork(
                setting.worker,
                lambda: worker.main(setting, sock, arena, self.slots, self.steps, self.documents, self.limits),
            )
            sock.close()
            os.close(arena)
        elif kind == ToSupervisor.SET_UP_NODE:
            _, ident, step = message
            sock = socket.socket(fileno=self.channel.fds.popleft())
            self.fork(ident, lambda: worker.set_up_node(step, sock, self.steps))
            sock.close()
        elif kind == ToSupervisor.INIT:
            self.load(*message[1:])
        elif kind == ToSupervisor.IMPORT:
            import_ahead(message[1])
        elif kind == ToSupervisor.CLEAR:
            self.clear()
        elif kind == ToSupervisor.QUIT:
            self.quitting = True

    def clear(self) -> None:
        """Forget a run, as if the next one were the first."""
        kill_descendants()
        self.steps, self.documents = [], []
        gc.unfreeze()  # it may be in a cycle
        self.unnamed = {}
        self.worker_ended = self.node_setup_ended = -math.inf

    def load(self, path: list[str], steps: bytes, limits: tuple[int, int, bool, int]) -> None:
        sys.path[:] = path
        self.limits = Limits(*limits)
        error = ""
        signal.signal(signal.SIGALRM, self.check_driver)
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
        try:
            self.steps, classes, self.documents = pickle.loads(steps)
            learn_names(classes)
            for stages in self.steps:
                for stage in stages:
                    stage.preload()
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                error = "a stage touches CUDA while it is loaded; do that in setup(), which runs in the worker"
        except ImportError as missing:  # what to install is all there is to say, where it is said
            error = str(missing) if "pip install" in str(missing) else traceback.format_exc(limit=-3).strip()
        except BaseException:  # loading runs the user's imports; whatever they raise, be it SystemExit, is told
            error = traceback.format_exc(limit=-3).strip()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        gc.collect()
        gc.freeze()  # what is loaded stays: workers need not look at it again, and so share its pages for longer
        self.channel.send([(FromSupervisor.LOADED, error)])
        if error:
            self.quitting = True

    def check_driver(self, signum: int, frame: FrameType | None) -> None:
        """Imports of stages may take long; the driver may be killed while they last."""
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
            self.channel.send([(FromSupervisor.UNABLE, str(error))])
            return
        if pid == 0:
            self.become(work)
        self.children[pid] = ident
        self.channel.send([(FromSupervisor.STARTED, ident, pid)])

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
        except BaseException:  # the last frame of a process: there is nobody above to handle it
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def reap(self) -> None:
        """Say which workers have ended, and kill what they left behind.

        Orphans come to the supervisor when their parent ends. One that was started as a program names in its
        environment who started it: it goes when that worker is gone, or with the run if that was `setup_on_node`.
        One that was only forked names nobody: it goes if a worker ended about when it was first seen, and no
        `setup_on_node` did. Whatever else there is, such as programs with another environment, goes with the run.
        """
        now = time.monotonic()
        ended: list[Message] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            ident = self.children.pop(pid, None)
            if ident is not None:
                ended.append((FromSupervisor.EXITED, ident, status))
                if ident >= 0:
                    self.worker_ended = now
                else:
                    self.node_setup_ended = now
        if ended:
            self.channel.send(ended)
        workers = {str(ident) for ident in self.children.values()} | {NODE_MARK}
        orphans = {pid: self.owner(pid) for pid in children_of(self.pid) if pid not in self.children}
        self.unnamed = {pid: self.unnamed.get(pid, now) for pid, owner in orphans.items() if owner == ""}
        for pid, owner in orphans.items():
            if owner and owner not in workers:
                _kill(pid)
        for pid, seen in self.unnamed.items():
            if abs(self.worker_ended - seen) < _LOOK_S * 2 <= abs(self.node_setup_ended - seen):
                _kill(pid)

    def owner(self, pid: int) -> str | None:
        """Who started a program of this run; empty if it was only forked, None if that is not known."""
        variables = environment_of(pid)
        if f"{RUN_MARK}={os.environ.get(RUN_MARK)}".encode() not in variables:
            return None  # also while it is being replaced by another program
        prefix = f"{WORKER_MARK}=".encode()
        return next((x.removeprefix(prefix).decode() for x in variables if x.startswith(prefix)), "")


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
    """Import what stages will need, while the driver still plans. What is wrong with it, loading the stages says."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def main(control: int, slots: int, driver: int, modules: Sequence[str] = ()) -> None:
    """The whole life of the supervisor process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Ctrl-C is the driver's. Not SIG_IGN: programs that stages start would inherit that.
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
    os._exit(0)  # the driver waits, and to take all that was imported apart takes a while
