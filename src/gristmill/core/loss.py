"""Notices that a cluster is lost.

When Ray's GCS is gone, calls to Ray wait, and after 60 s Ray ends the process that made them, with its own message.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from gristmill.errors import PipelineError

TIMEOUT_S = 45.0
"""How long a cluster may give no answer, by default: less than the 60 s of Ray, more than a GCS needs to restart."""
_LOOK_S = 0.5
_ASK_S = 1.0


def describe(address: str, seconds: float) -> str:
    """A message for people about a cluster that has given no answer for so long."""
    return (
        f"the Ray cluster at {address} has not answered for {seconds:g} s: its head node or GCS has ended, or cannot "
        "be reached. Start a cluster and run the same pipeline again: if it writes files, it resumes where it was."
    )


class ClusterLost(PipelineError):
    """The cluster of a run does not answer any more."""


class Pulse:
    """Asks a cluster for its nodes once a second, in a thread: the question may never be answered."""

    def __init__(self, ray: Any) -> None:
        self.answered_at = time.monotonic()
        self._ray = ray
        self._stop = threading.Event()
        threading.Thread(target=self._work, name="gristmill-pulse", daemon=True).start()

    def _work(self) -> None:
        while not self._stop.wait(_ASK_S):
            try:
                self._ray.nodes()
            except Exception:  # Ray raises various errors when the cluster is gone or this process has left it
                continue
            self.answered_at = time.monotonic()

    def close(self) -> None:
        self._stop.set()


class LossWatch:
    """Calls ``lost`` once, in a thread, if the last answer (``answered``) is more than ``timeout_s`` ago."""

    def __init__(self, answered: Callable[[], float], timeout_s: float, lost: Callable[[], None]) -> None:
        self._answered = answered
        self._timeout_s = timeout_s
        self._lost = lost
        self._stop = threading.Event()
        threading.Thread(target=self._work, name="gristmill-loss", daemon=True).start()

    def _work(self) -> None:
        while not self._stop.wait(min(_LOOK_S, self._timeout_s)):
            if time.monotonic() - self._answered() > self._timeout_s:
                self._lost()
                return

    def close(self) -> None:
        self._stop.set()
