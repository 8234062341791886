"""The connection of this process to a Ray cluster, for as long as a run needs it."""

from __future__ import annotations

import importlib
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from gristmill.core import clusters
from gristmill.core.client import RayClient
from gristmill.core.environment import environment
from gristmill.core.loss import ClusterLost, forget_at_exit
from gristmill.errors import PipelineError

_RETRY_AFTER_S = (1.0, 3.0)
"""Pauses before the second and the third attempt to connect through ``ray://``."""


def import_ray(executor: str, extra: str, *parts: str) -> Any:
    """Import Ray with parts of it. Raises `PipelineError` with the command that installs it."""
    try:
        import ray

        for part in parts:
            importlib.import_module(part)
    except ImportError as error:
        raise PipelineError(f"{executor} needs Ray ({error}): pip install 'gristmill[{extra}]'") from error
    return ray


@contextmanager
def connected(
    ray: Any,
    address: str | None,
    variables: Mapping[str, str] | None = None,
    runtime_env: dict[str, Any] | None = None,
    **start: Any,
) -> Iterator[None]:
    """Connect to a cluster. A connection or cluster that existed before stays open.

    If this process is connected, that connection is used. Otherwise the cluster is the one that `RayClient` finds, or
    one that it starts with the arguments ``start`` and, in its environment, ``variables``. Processes of this job have
    the ``runtime_env``.
    """
    if ray.is_initialized():
        if address not in (None, "auto"):
            clusters.find(address)  # an error if this process is connected to another cluster
        try:
            yield
        except ClusterLost:
            forget_at_exit(ray)
            raise
        return
    with environment(variables or {}), RayClient(address=address, **{"include_dashboard": False, **start}) as client:
        try:
            with late_interrupt():  # a process with half a connection crashes when it ends
                _connect(ray, address=client.at, runtime_env=runtime_env, logging_level="warning")
        except (ConnectionError, OSError, RuntimeError, ray.exceptions.RayError) as error:
            raise PipelineError(f"no Ray cluster could be reached at {client.at}: {last_line(error)}") from error
        except KeyboardInterrupt:
            ray.shutdown()
            raise
        try:
            yield
        except ClusterLost:
            client.abandon()
            raise
        except BaseException:
            ray.shutdown()
            raise
        ray.shutdown()


def _connect(ray: Any, **options: Any) -> None:
    """Call ``ray.init``, up to three times if it fails at the other end of ``ray://``.

    There Ray starts a process for each client, and refuses the client if that process ends early, for example because
    another process took its port meanwhile.
    """
    for wait_s in (*_RETRY_AFTER_S, None):
        try:
            ray.init(**options)
            return
        except ConnectionAbortedError:
            ray.shutdown()
            if wait_s is None:
                raise
            time.sleep(wait_s)


def last_line(error: BaseException) -> str:
    """Return the last line of an error of Ray's, which may hold the traceback of another process."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


@contextmanager
def late_interrupt() -> Iterator[None]:
    """Delay a Ctrl-C to the end of the block. A second one takes effect at once."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    caught: list[FrameType | None] = []

    def note(signum: int, frame: FrameType | None) -> None:
        caught.append(frame)
        if len(caught) > 1:
            before(signum, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        before(signal.SIGINT, caught[0])
