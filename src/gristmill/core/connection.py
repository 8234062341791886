"""This process's connection to a Ray cluster, for as long as a run needs it."""

from __future__ import annotations

import importlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from gristmill.core.client import RayClient, forget_at_exit
from gristmill.core.loss import ClusterLost
from gristmill.errors import PipelineError

_RETRY_AFTER_S = (1.0, 3.0)
"""Pauses before the second and the third attempt to connect through ``ray://``."""


def import_ray(who: str, extra: str, *parts: str) -> Any:
    """Ray with parts of it, or a `PipelineError` that says how to get it."""
    try:
        import ray

        for part in parts:
            importlib.import_module(part)
    except ImportError as error:
        raise PipelineError(f"{who} needs Ray ({error}): pip install 'gristmill[{extra}]'") from error
    return ray


@contextmanager
def connected(
    ray: Any,
    address: str | None,
    variables: Mapping[str, str] | None = None,
    namespace: str | None = None,
    runtime_env: dict[str, Any] | None = None,
    **start: Any,
) -> Iterator[None]:
    """Be connected. What was connected or running before stays so afterwards.

    A connection that this process has is used and kept. Otherwise the cluster is the one that `RayClient` finds, or one
    that it starts with the arguments of ``start`` and, in its environment, ``variables``. Processes of this job have
    the ``runtime_env``.
    """
    if ray.is_initialized():
        if address not in (None, "auto"):
            RayClient(address=address).start()  # an error if this process is connected elsewhere
        try:
            yield
        except ClusterLost:
            forget_at_exit(ray)
            raise
        return
    start = {"include_dashboard": False, **start}
    with environment(variables or {}), RayClient(address=address, **start) as client:
        try:
            with late_interrupt():  # Ray that is half connected crashes when the process ends
                _connect(ray, address=client.at, namespace=namespace, runtime_env=runtime_env, logging_level="warning")
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
    """Call ``ray.init``, again if it fails at the other end of ``ray://``.

    There Ray starts a process for each client, and refuses the client if that process ends early, for example because
    another took its port meanwhile.
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
    """What Ray says of an error, without the traceback of another process that it may hold."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


@contextmanager
def late_interrupt() -> Iterator[None]:
    """Let a Ctrl-C that comes meanwhile take effect at the end, and a second one at once."""
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


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have variables set for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
