"""One run, from the plan to the record: what is the same for every backend that plays the scheduler."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from gristmill.backends.base import Plan, RunRecord
from gristmill.backends.engine.account import RunAccount
from gristmill.backends.engine.executor_config import EngineConfig
from gristmill.backends.engine.interrupts import Interrupts
from gristmill.backends.engine.names import LocalNames, pickle_steps
from gristmill.backends.engine.outputs import KeptOutputs
from gristmill.backends.engine.source import TaskSource, source_of
from gristmill.backends.engine.specs import scheduler_config_of, specs_of
from gristmill.backends.engine.worker import Limits
from gristmill.errors import PlanError
from gristmill.metrics.view import View, view_for
from gristmill.scheduling import Scheduler
from gristmill.scheduling.events import NodeJoined
from gristmill.scheduling.log import RecordingScheduler
from gristmill.scheduling.scheduler import misfits
from gristmill.tasks import Task


@dataclass
class RunParts:
    """What the driver of a run and its reports work with."""

    plan: Plan
    scheduler: Scheduler
    source: TaskSource
    outputs: KeptOutputs
    account: RunAccount
    view: View
    names: LocalNames
    interrupts: Interrupts


class RunnableDriver(Protocol):
    def run(self) -> RunRecord: ...
    def close(self) -> None: ...


class EngineRun:
    """Opens what a run needs, in order, on a stack that the backend adds to: `open`, `parts`, `drive`, then `end`."""

    def __init__(
        self, config: EngineConfig, plan: Plan, initial_tasks: Iterable[Task[Any]] | None, keep_outputs: bool | None
    ) -> None:
        if plan.ledger is not None:
            plan.ledger.ignore_failures = config.ignore_failures
        self.config = config
        self.plan = plan
        self.specs = specs_of(plan, config)
        self.outputs = KeptOutputs(keep_outputs, initial_tasks is not None)
        self.interrupts = Interrupts()
        self._tasks = initial_tasks
        self._record: RunRecord | None = None

    def check(self, nodes: list[NodeJoined]) -> None:
        """Raise `PlanError` if a step fits on none of the nodes."""
        if problems := misfits(self.specs, nodes):
            raise PlanError("\n".join(problems))

    def open(self, stack: ExitStack) -> bytes:
        """Catch Ctrl-C from now on. Return the pickled stages."""
        stack.enter_context(self.interrupts)
        self._names = LocalNames()
        stack.callback(self._names.close)
        return pickle_steps(self.plan, self._names)

    def parts(self, stack: ExitStack, budget: int, prefetch_us: int = 20_000) -> RunParts:
        """Return the parts of the run, whose tasks in flight may take ``budget`` bytes."""
        config = self.config
        log = None
        if config.event_log:
            log = stack.enter_context(open(config.event_log, "w"))  # noqa: SIM115  # the stack closes it
        view = view_for(config.view, logging_interval=config.logging_interval)
        stack.callback(lambda: view.close(self._record))
        options = scheduler_config_of(config, budget, prefetch_us)
        scheduler = RecordingScheduler(self.specs, options, log) if log else Scheduler(self.specs, options)
        source = source_of(self._tasks)
        stack.callback(source.close)
        account = RunAccount(self.plan)
        return RunParts(self.plan, scheduler, source, self.outputs, account, view, self._names, self.interrupts)

    def limits(self, budget: int, inline: int, retain: int = 0) -> Limits:
        return Limits(max(1 << 16, min(16 << 20, budget // 16)), retain, self.outputs.wanted, inline)

    def drive(self, stack: ExitStack, driver: RunnableDriver, scheduler: Scheduler) -> None:
        """Run to the end. From then on Ctrl-C does not interrupt the closing of the stack."""
        stack.callback(driver.close)
        stack.callback(setattr, self.interrupts, "closing", True)
        self._record = driver.run()
        if isinstance(scheduler, RecordingScheduler):
            self._record.event_hash = scheduler.event_hash()

    def end(self) -> RunRecord:
        """Return the record once the stack is closed; after Ctrl-C or SIGTERM, end as the signal asked."""
        if self.interrupts.terminated:
            signal.raise_signal(signal.SIGTERM)
        assert self._record is not None
        if self._record.interrupted:
            raise KeyboardInterrupt
        return self._record
