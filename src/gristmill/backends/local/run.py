"""A run on this machine, from the plan to the record."""

from __future__ import annotations

import contextlib
import resource
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from gristmill.backends.base import Plan, RunRecord
from gristmill.backends.engine import machine
from gristmill.backends.engine.payload import INLINE_BYTES
from gristmill.backends.engine.run import EngineRun
from gristmill.backends.local.arena import INLINE_BYTES_ON_DISK
from gristmill.backends.local.driver import LocalDriver
from gristmill.backends.local.local_config import LocalConfig
from gristmill.backends.local.processes import Processes
from gristmill.backends.local.store import LocalStore
from gristmill.scheduling.events import NodeJoined
from gristmill.scheduling.settings import UNIT
from gristmill.tasks import Task

_WANTED = 65536
_lock = threading.Lock()
_runs = 0
_before: tuple[int, int] | None = None


def run(
    config: LocalConfig,
    processes: Processes,
    plan: Plan,
    initial_tasks: Iterable[Task[Any]] | None,
    keep_outputs: bool | None,
    others_follow: bool = False,
) -> RunRecord:
    """Run a plan to its end. ``processes`` are closed then, or cleared if the run ended well and others follow."""
    devices = machine.devices(config.num_gpus, config.gpu_memory_gb) if plan.asks_for_gpus else ()
    this = EngineRun(config, plan.on_gpus(len(devices)), initial_tasks, keep_outputs)
    node = NodeJoined(0, int(config.cpus * UNIT), config.memory_limit_bytes, tuple(size for _, size in devices))
    this.check([node])
    budget = config.budget_bytes
    on_disk = config.execution_mode == "batch"
    retain = min(32 << 20, int(budget / 8 / max(1.0, config.cpus + len(devices))))
    limits = this.limits(budget, INLINE_BYTES_ON_DISK if on_disk else INLINE_BYTES, retain)
    continues = False
    with ExitStack() as stack:
        steps = this.open(stack)
        stack.enter_context(many_descriptors())
        parts = this.parts(stack, budget)
        processes.load(on_disk, steps, limits)
        stack.callback(lambda: processes.clear() if continues else processes.close())
        store = LocalStore(processes, limits)
        driver = LocalDriver(parts, processes, node, tuple(name for name, _ in devices), store)
        this.drive(stack, driver, parts.scheduler)
        # A supervisor that has not reported yet that it loaded these stages would do so during the next run.
        continues = others_follow and driver.talk.loaded and not this.interrupts.count
    return this.end()


@contextlib.contextmanager
def many_descriptors() -> Iterator[None]:
    """Raise the limit to what is allowed. The last of several runs at a time restores it."""
    global _runs, _before
    with _lock:
        _runs += 1
        if _runs == 1:
            _before = _raise()
    try:
        yield
    finally:
        with _lock:
            _runs -= 1
            if not _runs and _before is not None:
                with contextlib.suppress(ValueError, OSError):
                    resource.setrlimit(resource.RLIMIT_NOFILE, _before)


def _raise() -> tuple[int, int] | None:
    """The limit that was in force if it was raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):
        return None
    return soft, hard
