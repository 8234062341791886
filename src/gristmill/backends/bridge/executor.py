"""`BridgeExecutor`: a run on another scheduler. A subclass hands the steps to it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from gristmill.backends.base import Executor, Plan, RunRecord, Step
from gristmill.backends.bridge.accounts import ProgressLines, RunAccounts, following, wait_for_teardowns
from gristmill.backends.bridge.cluster import gpus_in, running_collector, smallest_gpu
from gristmill.backends.bridge.collector import PackedTask
from gristmill.backends.bridge.process import RemoteCollector, StepWork
from gristmill.backends.capabilities import can, check
from gristmill.backends.engine.account import KeptOutputs
from gristmill.backends.engine.executor_config import ExecutorConfig
from gristmill.backends.engine.names import LocalNames, pickle_steps
from gristmill.core.connection import connected
from gristmill.logs import logger
from gristmill.tasks import Task

_TEARDOWN_S = 10.0


@dataclass(frozen=True)
class BridgeConfig(ExecutorConfig):
    """Options with their defaults."""

    views = ("auto", "lines", "off")

    address: str | None = None
    """Address of the cluster; None is the one this process is connected to, RAY_ADDRESS, or a new one on this host."""


class BridgeExecutor(Executor):
    """Runs a plan on another scheduler that uses Ray."""

    config: BridgeConfig
    name: ClassVar[str]
    """Its name in `capabilities.EXECUTORS`."""
    scheduler: ClassVar[str]
    """The name of the other scheduler, for messages."""

    @contextmanager
    def several(self) -> Iterator[None]:
        with self.connected(self.import_ray()):
            yield

    def execute(self, plan: Plan, initial_tasks: Iterable[Task[Any]] | None, keep_outputs: bool | None) -> RunRecord:
        self.check_plan(plan)
        ray = self.import_ray()
        outputs = KeptOutputs(keep_outputs, initial_tasks is not None)
        progress = ProgressLines(self.config.view, self.config.logging_interval)
        accounts = RunAccounts(plan, self.ignore_failures, progress)
        with ExitStack() as stack:
            local = LocalNames()
            stack.callback(local.close)
            stack.enter_context(self.session(ray))
            plan = plan.on_gpus(gpus_in(ray))
            if plan.observer is not None:
                plan.observer.begin(plan.info(self.name))
            stages = pickle_steps(plan, local)
            stack.callback(accounts.close)
            attempts = [self.attempts(step) for step in plan.steps]
            gpu_bytes = smallest_gpu(ray, plan, self.config.gpu_memory_gb)
            collector = stack.enter_context(running_collector(ray, stages, attempts))
            last = len(plan.steps) - 1
            work = [StepWork(collector, i, n, outputs.wanted or i < last) for i, n in enumerate(attempts)]
            steps = self.described(ray, plan, work, gpu_bytes)
            inputs = self.inputs(ray, accounts.pack_initial(initial_tasks, local))
            if inputs:
                self._run(ray, steps, inputs, collector, accounts, outputs)
            for message in accounts.messages:
                logger.warning(message)
            return accounts.record(outputs)

    def _run(
        self,
        ray: Any,
        steps: list[Any],
        inputs: Sequence[Any],
        collector: RemoteCollector,
        accounts: RunAccounts,
        outputs: KeptOutputs,
    ) -> None:
        try:
            with following(accounts, collector.take_update):
                for label, payload in self.outputs(ray, steps, inputs, collector, outputs.wanted):
                    outputs.add(label, payload)
        except Exception as error:  # the errors of Ray and of all its parts have no common base
            running = "" if accounts.fatal else self.running(collector, accounts.plan)
            reason = f"{self.scheduler} ended it: {type(error).__name__}: {error}{running}"
            raise accounts.stopped(reason) from error
        accounts.check_complete()
        if can(self.name, "teardown"):
            wait_for_teardowns(accounts, collector.take_update, _TEARDOWN_S)

    def check_plan(self, plan: Plan) -> None:
        """Raise `PlanError` for a plan that cannot run here, before anything starts."""
        check(plan, self.name)

    def attempts(self, step: Step) -> int:
        return step.stages[0].max_attempts or self.config.max_attempts

    def connected(self, ray: Any) -> AbstractContextManager[None]:
        return connected(ray, self.config.address)

    def session(self, ray: Any) -> AbstractContextManager[None]:
        """Connect to the cluster for one run."""
        return self.connected(ray)

    def running(self, collector: RemoteCollector, plan: Plan) -> str:
        """Return a line with the tasks that were running when the scheduler failed, if one may be the cause."""
        return ""

    @abstractmethod
    def import_ray(self) -> Any:
        """Import Ray and all that the executor needs. Raises `PipelineError` with the command that installs it."""

    @abstractmethod
    def described(self, ray: Any, plan: Plan, work: list[StepWork], gpu_bytes: int) -> list[Any]:
        """Return the steps as the scheduler takes them. Raises `PlanError` if the cluster lacks the capacity."""

    @abstractmethod
    def inputs(self, ray: Any, tasks: Iterable[PackedTask]) -> Sequence[Any]:
        """Return the initial tasks as the scheduler takes them."""

    @abstractmethod
    def outputs(
        self, ray: Any, steps: list[Any], inputs: Sequence[Any], collector: RemoteCollector, wanted: bool
    ) -> Iterable[PackedTask]:
        """Run the steps to their end; yield the outputs of the last one if they are wanted."""
