"""One run, from the plan to the record: what is the same for every backend that plays the scheduler."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from gristmill.backends.base import Plan, RunRecord, Step
from gristmill.backends.engine.account import KeptOutputs, RunAccount
from gristmill.backends.engine.executor_config import EngineConfig
from gristmill.backends.engine.names import LocalNames, pickle_steps
from gristmill.backends.engine.source import TaskSource, source_of
from gristmill.backends.engine.worker import Limits
from gristmill.backends.step_runner import overrides
from gristmill.errors import PlanError
from gristmill.metrics.view import Announced, View, view_for
from gristmill.scheduling import Scheduler, SchedulerConfig, StepSpec
from gristmill.scheduling.events import NodeJoined
from gristmill.scheduling.log import RecordingScheduler
from gristmill.scheduling.profile import Profile
from gristmill.scheduling.scheduler import misfits
from gristmill.scheduling.settings import UNIT
from gristmill.tasks import Task

_GB = 2**30


class Interrupts:
    """Counts Ctrl-C in place of raising `KeyboardInterrupt`, so that a run can end in order.

    The second one raises all the same, but none does once ``closing`` is set. SIGTERM, with which batch systems end a
    job, counts likewise; the caller ends the process by it once the run has ended.
    In threads other than the main one nothing is changed, nor is the handler of a signal that is ignored or has one.
    """

    def __init__(self) -> None:
        self.count = 0
        self.closing = False
        self.terminated = False
        self._term_before: Any = None
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before is not None and before is not signal.SIG_IGN:
                self._before = before
                signal.signal(signal.SIGINT, self._caught)
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                self._term_before = signal.signal(signal.SIGTERM, self._told_to_end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._term_before is not None:
            signal.signal(signal.SIGTERM, self._term_before)

    def _caught(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self.closing and self.count > 1:
            raise KeyboardInterrupt

    def _told_to_end(self, signum: int, frame: FrameType | None) -> None:
        self.terminated = True
        self.count = max(self.count, 1)


@dataclass
class RunParts:
    """The parts of a run that its driver and its reports share."""

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
        self.plan = plan.with_found(config.profile) if isinstance(config.profile, Profile) else plan
        self.specs = specs_of(self.plan, config)
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

    def use_gpus(self, count: int) -> bytes:
        """Adapt the plan to the number of GPUs that there are. Return the pickled stages."""
        self.plan = self.plan.on_gpus(count)
        self.specs = specs_of(self.plan, self.config)
        return pickle_steps(self.plan, self._names)

    def parts(self, stack: ExitStack, budget: int, prefetch_us: int = 20_000) -> RunParts:
        """Return the parts of the run, whose tasks in flight may take ``budget`` bytes."""
        config = self.config
        log = None
        if config.event_log:
            log = stack.enter_context(open(config.event_log, "w"))  # noqa: SIM115  # the stack closes it
        view = view_for(config.view, logging_interval=config.logging_interval)
        if self.plan.observer is not None:
            view = Announced(view, self.plan.observer)
            self.plan.observer.begin(self.plan.info(config.executor))
        stack.callback(lambda: view.close(self._record))
        options = scheduler_config_of(config, budget, prefetch_us)
        scheduler = RecordingScheduler(self.specs, options, log) if log else Scheduler(self.specs, options)
        source = source_of(self._tasks)
        stack.callback(source.close)
        account = RunAccount(self.plan)
        return RunParts(self.plan, scheduler, source, self.outputs, account, view, self._names, self.interrupts)

    def limits(self, budget: int, inline: int, retain: int = 0) -> Limits:
        chunk = max(1 << 16, min(16 << 20, budget // 16))
        return Limits(chunk, retain, self.outputs.wanted, inline, self.config.task_timeout_s)

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


def specs_of(plan: Plan, config: EngineConfig) -> list[StepSpec]:
    """Return the steps as the scheduler sees them, with the measurements of an earlier run."""
    specs = [step_spec(step, config) for step in plan.steps]
    return config.profile.apply(specs) if isinstance(config.profile, Profile) else specs


def step_spec(step: Step, config: EngineConfig) -> StepSpec:
    """Return a step as the scheduler sees it."""
    first = step.stages[0]
    resources = step.resources
    timeout = first.timeout_s if first.timeout_s is not None else config.task_timeout_s
    lifetime = first.worker_max_lifetime_m if first.worker_max_lifetime_m is not None else config.worker_max_lifetime_m
    interval = first.worker_restart_interval_m
    return StepSpec(
        name=step.name,
        cpu=round(resources.cpus * UNIT),
        gpu=int(resources.gpus * UNIT) or int(resources.gpus > 0),
        gpu_memory=int(resources.gpu_memory_gb * _GB) or int(resources.gpu_memory_gb > 0),
        memory=int(resources.memory_gb * _GB),
        batch_size=step.batch_size,
        workers=step.num_workers,
        has_setup=any(overrides(stage, "setup") for stage in step.stages),
        node_setup=any(overrides(stage, "setup_on_node") for stage in step.stages),
        max_attempts=first.max_attempts or config.max_attempts,
        slices=all(stage.split_on_failure for stage in step.stages),
        timeout_us=None if timeout is None else int(timeout * UNIT),
        lifetime_us=None if lifetime is None else int(lifetime * 60 * UNIT),
        restart_interval_us=int((config.worker_restart_interval_m if interval is None else interval) * 60 * UNIT),
        dedicated=first.runs_async(),
        in_flight=first.max_in_flight if first.runs_async() else 0,
        streams=first.streams_async(),
    )


def scheduler_config_of(config: EngineConfig, budget: int, prefetch_us: int = 20_000) -> SchedulerConfig:
    lifetime = config.worker_max_lifetime_m
    return SchedulerConfig(
        budget=budget,
        prefetch_us=prefetch_us,
        autoscale_interval_us=int(config.autoscale_interval_s * UNIT),
        batch_mode=config.execution_mode == "batch",
        ignore_failures=config.ignore_failures,
        setup_timeout_us=None if config.setup_timeout_s is None else int(config.setup_timeout_s * UNIT),
        shared_lifetime_us=None if lifetime is None else int(lifetime * 60 * UNIT),
        shared_restart_interval_us=int(config.worker_restart_interval_m * 60 * UNIT),
    )
