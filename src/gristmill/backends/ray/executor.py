"""`RayExecutor`: runs a plan on a Ray cluster."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from gristmill.backends.base import Executor, Plan, RunRecord
from gristmill.backends.engine.interrupts import Interrupts
from gristmill.backends.engine.names import LocalNames, pickle_steps
from gristmill.backends.engine.outputs import KeptOutputs
from gristmill.backends.engine.payload import INLINE_BYTES
from gristmill.backends.engine.source import source_of
from gristmill.backends.engine.specs import scheduler_config_of, specs_of
from gristmill.backends.engine.worker import Limits
from gristmill.backends.ray.cluster import NodeState, nodes_of
from gristmill.backends.ray.driver import RayDriver
from gristmill.backends.ray.ray_config import RayConfig
from gristmill.backends.ray.store import RayStore
from gristmill.core.connection import connected, import_ray
from gristmill.core.environment import environment
from gristmill.errors import PlanError
from gristmill.metrics.view import view_for
from gristmill.scheduling import Scheduler
from gristmill.scheduling.events import NodeJoined
from gristmill.scheduling.log import RecordingScheduler
from gristmill.scheduling.scheduler import misfits
from gristmill.scheduling.settings import UNIT
from gristmill.tasks import EmptyTask, Task

_PREFETCH_US = 60_000
"""Work that waits in each worker: a call and its answer take some milliseconds."""


class RayExecutor(Executor):
    """Runs pipelines on a Ray cluster: the stages and results are those of `LocalExecutor`.

        result = pipeline.run(RayExecutor(config={"address": "auto"}))

    The options are those of `RayConfig`; others are errors. Workers are actors that reserve what their stages ask for,
    so several runs may share a cluster. Without a cluster one is started on this machine and stopped with the run.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.config = RayConfig.of(config)

    @property
    def ignore_failures(self) -> bool:
        return self.config.ignore_failures

    @contextmanager
    def several(self) -> Iterator[None]:
        with self._connected(import_ray("RayExecutor", "ray")):
            yield

    def _connected(self, ray: Any) -> AbstractContextManager[None]:
        cpus = None if self.config.num_cpus is None else math.ceil(self.config.num_cpus)
        return connected(ray, self.config.address, num_cpus=cpus, num_gpus=self.config.num_gpus)

    def execute(self, plan: Plan, initial_tasks: Iterable[Task[Any]] | None, keep_outputs: bool | None) -> RunRecord:
        config = self.config
        if plan.ledger is not None:
            plan.ledger.ignore_failures = config.ignore_failures
        specs = specs_of(plan, config)
        outputs = KeptOutputs(keep_outputs, initial_tasks is not None)
        tasks: Iterable[Task[Any]] = [EmptyTask()] if initial_tasks is None else initial_tasks
        total = len(tasks) if isinstance(tasks, Sized) else None
        record: RunRecord | None = None
        with ExitStack() as stack:
            interrupts = stack.enter_context(Interrupts())
            local = LocalNames()
            stack.callback(local.close)
            steps = pickle_steps(plan, local)
            ray = import_ray("RayExecutor", "ray")
            # of a call that failed, only one of the two results is looked at: Ray need not tell of the other
            stack.enter_context(environment({"RAY_IGNORE_UNHANDLED_ERRORS": "1"}))
            stack.enter_context(self._connected(ray))
            nodes = nodes_of(ray)
            if problems := misfits(specs, [_at_best(node, config) for node in nodes]):
                raise PlanError("\n".join(problems))
            store_bytes = sum(node.object_store for node in nodes)
            scheduler_config = scheduler_config_of(config, config.budget_of(store_bytes), _PREFETCH_US)
            budget = scheduler_config.budget
            limits = Limits(max(1 << 16, min(16 << 20, budget // 16)), 0, outputs.wanted, INLINE_BYTES)
            log = stack.enter_context(open(config.event_log, "w")) if config.event_log else None
            view = view_for(config.view, logging_interval=config.logging_interval)
            stack.callback(lambda: view.close(record))
            scheduler = RecordingScheduler(specs, scheduler_config, log) if log else Scheduler(specs, scheduler_config)
            source = source_of(tasks, total)
            stack.callback(source.close)
            store = RayStore(ray, limits.inline)
            driver = RayDriver(
                ray, config, plan, scheduler, steps, limits, source, store, outputs, view, local, interrupts
            )
            stack.callback(driver.close)
            stack.callback(setattr, interrupts, "closing", True)
            record = driver.run()
            if isinstance(scheduler, RecordingScheduler):
                record.event_hash = scheduler.event_hash()
        if interrupts.terminated:
            signal.raise_signal(signal.SIGTERM)
        if record.interrupted:
            raise KeyboardInterrupt
        return record


def _at_best(node: NodeState, config: RayConfig) -> NodeJoined:
    """What a node could give. How much memory its GPUs have is known once somebody is there, unless it was said."""
    size = 1 << 50 if config.gpu_memory_gb is None else int(config.gpu_memory_gb * 2**30)
    return NodeJoined(0, int(node.cpus * config.cpu_allocation_percentage * UNIT), node.memory, (size,) * node.gpus)
