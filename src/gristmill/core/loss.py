"""Notices that a cluster is lost, and lets this process end in order then.

If Ray's GCS is gone, calls to Ray wait. After 60 s Ray ends the process that made them, with its own message.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

from gristmill.errors import PipelineError

TIMEOUT_S = 45.0
"""How long a cluster may give no answer, by default: less than the 60 s of Ray, more than a GCS needs to restart."""
_CHECK_INTERVAL_S = 0.5
_ASK_INTERVAL_S = 1.0


class ClusterLost(PipelineError):
    """The cluster of a run does not answer any more."""


def describe(address: str, seconds: float) -> str:
    """Return the message for a cluster that has given no answer for so long."""
    return (
        f"the Ray cluster at {address} has not answered for {seconds:g} s: its head node or GCS has ended, or cannot "
        "be reached. Start a cluster and run the same pipeline again: if it writes files, it resumes where it was."
    )


def _repeat(name: str, interval_s: float, step: Callable[[], bool]) -> threading.Event:
    """Call ``step`` at an interval, in a thread of its own, until it returns False or the event is set."""
    closed = threading.Event()

    def work() -> None:
        while not closed.wait(interval_s) and step():
            pass

    threading.Thread(target=work, name=name, daemon=True).start()
    return closed


class Pulse:
    """Asks a cluster for its nodes once a second. In a thread, because an answer may never come."""

    def __init__(self, ray: Any) -> None:
        self.answered_at = time.monotonic()
        self._ray = ray
        self.close = _repeat("gristmill-pulse", _ASK_INTERVAL_S, self._ask).set

    def _ask(self) -> bool:
        with contextlib.suppress(Exception):  # various errors when the cluster is gone or this process has left it
            self._ray.nodes()
            self.answered_at = time.monotonic()
        return True


class LossWatch:
    """Calls ``lost`` once if the last answer (``answered``) is more than ``timeout_s`` ago."""

    def __init__(self, answered: Callable[[], float], timeout_s: float, lost: Callable[[], None]) -> None:
        def check() -> bool:
            answers = time.monotonic() - answered() <= timeout_s
            if not answers:
                lost()
            return answers

        self.close = _repeat("gristmill-loss", min(_CHECK_INTERVAL_S, timeout_s), check).set


def forget_at_exit(ray: Any) -> None:
    """Let this process end with its own exit code although it is connected to a cluster that does not answer.

    Ray's exit handler would wait for the cluster, and then destructors of its core crash (SIGSEGV) because its threads
    still wait. So neither runs; all other exit handlers of Python do. Destructors can be skipped only with glibc;
    elsewhere Ray may still end the process with a signal, after all exit handlers.
    """
    atexit.unregister(ray._private.worker.shutdown)
    libc = ctypes.CDLL(None)
    try:
        on_exit = libc.on_exit
    except AttributeError:  # not glibc
        return
    libc.fflush(None)
    on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)  # called with the exit code, before all others
