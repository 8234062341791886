"""A run on this machine, from the plan to the record."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sized
from contextlib import ExitStack
from typing import Any

from gristmill.backends.base import Plan, RunRecord
from gristmill.backends.engine import machine
from gristmill.backends.engine.interrupts import Interrupts
from gristmill.backends.engine.names import LocalNames, pickle_steps
from gristmill.backends.engine.outputs import KeptOutputs
from gristmill.backends.engine.payload import INLINE_BYTES
from gristmill.backends.engine.source import source_of
from gristmill.backends.engine.specs import scheduler_config_of, specs_of
from gristmill.backends.engine.worker import Limits
from gristmill.backends.local.arena import INLINE_BYTES_ON_DISK
from gristmill.backends.local.descriptors import many_descriptors
from gristmill.backends.local.driver import LocalDriver
from gristmill.backends.local.local_config import LocalConfig
from gristmill.backends.local.processes import Processes
from gristmill.backends.local.store import LocalStore
from gristmill.errors import PlanError
from gristmill.metrics.view import view_for
from gristmill.scheduling import Scheduler
from gristmill.scheduling.events import NodeJoined
from gristmill.scheduling.log import RecordingScheduler
from gristmill.scheduling.scheduler import misfits
from gristmill.scheduling.settings import UNIT
from gristmill.tasks import EmptyTask, Task


def run(
    config: LocalConfig,
    processes: Processes,
    plan: Plan,
    initial_tasks: Iterable[Task[Any]] | None,
    keep_outputs: bool | None,
    others_follow: bool = False,
) -> RunRecord:
    """Run a plan to its end. ``processes`` are closed then; if nothing went amiss and others follow, cleared."""
    if plan.ledger is not None:
        plan.ledger.ignore_failures = config.ignore_failures
    specs = specs_of(plan, config)
    needs_gpus = any(spec.uses_gpu for spec in specs)
    devices = machine.devices(config.num_gpus, config.gpu_memory_gb) if needs_gpus else ()
    node = NodeJoined(0, int(config.cpus * UNIT), config.memory_limit_bytes, tuple(size for _, size in devices))
    problems = misfits(specs, [node])
    if problems:
        raise PlanError("\n".join(problems))
    outputs = KeptOutputs(keep_outputs, initial_tasks is not None)
    tasks: Iterable[Task[Any]] = [EmptyTask()] if initial_tasks is None else initial_tasks
    total = len(tasks) if isinstance(tasks, Sized) else None
    scheduler_config = scheduler_config_of(config, config.budget_bytes)
    on_disk = config.execution_mode == "batch"
    limits = _limits(scheduler_config.budget, config.cpus + len(devices), outputs.wanted, on_disk)
    record: RunRecord | None = None
    goes_on = False
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        local = LocalNames()
        stack.callback(local.close)
        steps = pickle_steps(plan, local)
        stack.enter_context(many_descriptors())
        log = stack.enter_context(open(config.event_log, "w")) if config.event_log else None
        view = view_for(config.view, logging_interval=config.logging_interval)
        stack.callback(lambda: view.close(record))
        scheduler = RecordingScheduler(specs, scheduler_config, log) if log else Scheduler(specs, scheduler_config)
        processes.load(on_disk, steps, limits)
        stack.callback(lambda: processes.clear() if goes_on else processes.close())
        stack.callback(setattr, interrupts, "closing", True)
        store = LocalStore(processes, limits)
        source = source_of(tasks, total)
        stack.callback(source.close)
        names = tuple(name for name, _ in devices)
        driver = LocalDriver(plan, scheduler, processes, node, names, source, store, outputs, view, local, interrupts)
        stack.callback(driver.close)
        record = driver.run()
        # a supervisor that has yet to say that it loaded these stages would say so in the middle of the next run
        goes_on = others_follow and driver.talk.loaded and not interrupts.count
        if isinstance(scheduler, RecordingScheduler):
            record.event_hash = scheduler.event_hash()
    if interrupts.terminated:
        signal.raise_signal(signal.SIGTERM)
    if record.interrupted:
        raise KeyboardInterrupt
    return record


def _limits(budget: int, workers: float, keep: bool, on_disk: bool) -> Limits:
    return Limits(
        chunk=max(1 << 16, min(16 << 20, budget // 16)),
        retain=min(32 << 20, int(budget / 8 / max(1.0, workers))),
        keep=keep,
        inline=INLINE_BYTES_ON_DISK if on_disk else INLINE_BYTES,
    )
