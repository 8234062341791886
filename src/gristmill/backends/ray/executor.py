"""`RayExecutor`: runs a plan on a Ray cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from gristmill.backends.base import Executor, ExecutorLimits, Plan, RunRecord
from gristmill.backends.engine.payload import INLINE_BYTES
from gristmill.backends.engine.run import EngineRun
from gristmill.backends.ray.cluster import NodeState, nodes_of
from gristmill.backends.ray.driver import RayDriver
from gristmill.backends.ray.ray_config import RayConfig
from gristmill.backends.ray.store import RayStore
from gristmill.core.connection import connected, import_ray
from gristmill.core.environment import environment
from gristmill.scheduling.events import NodeJoined
from gristmill.scheduling.settings import UNIT
from gristmill.tasks import Task

_PREFETCH_US = 60_000
"""Work that waits in each worker: a call and its answer take some milliseconds."""


class RayExecutor(Executor):
    """Runs pipelines on a Ray cluster: the stages and results are those of `LocalExecutor`.

        result = pipeline.run(RayExecutor(config={"address": "auto"}))

    The options are those of `RayConfig`; others are errors. Workers are actors that reserve what their stages ask for,
    so several runs may share a cluster. Without a cluster one is started on this machine and stopped with the run.
    """

    config_class = RayConfig
    config: RayConfig

    def limits(self) -> ExecutorLimits:
        return ExecutorLimits(cpus=self.config.num_cpus, gpus=self.config.num_gpus)

    @contextmanager
    def several(self) -> Iterator[None]:
        with self._connected(import_ray("RayExecutor", "ray")):
            yield

    def _connected(self, ray: Any) -> AbstractContextManager[None]:
        cpus = None if self.config.num_cpus is None else math.ceil(self.config.num_cpus)
        return connected(ray, self.config.address, num_cpus=cpus, num_gpus=self.config.num_gpus)

    def execute(self, plan: Plan, initial_tasks: Iterable[Task[Any]] | None, keep_outputs: bool | None) -> RunRecord:
        config = self.config
        this = EngineRun(config, plan, initial_tasks, keep_outputs)
        with ExitStack() as stack:
            this.open(stack)
            ray = import_ray("RayExecutor", "ray")
            # If a call fails, only one of its two results is read: Ray need not report the other.
            stack.enter_context(environment({"RAY_IGNORE_UNHANDLED_ERRORS": "1"}))
            stack.enter_context(self._connected(ray))
            nodes = nodes_of(ray)
            steps = this.use_gpus(sum(node.gpus for node in nodes))
            this.check([_at_best(node, config) for node in nodes])
            budget = config.budget_of(sum(node.object_store for node in nodes))
            limits = this.limits(budget, INLINE_BYTES)
            parts = this.parts(stack, budget, _PREFETCH_US)
            driver = RayDriver(ray, config, parts, steps, limits, RayStore(ray, limits.inline))
            this.drive(stack, driver, parts.scheduler)
        return this.end()


def _at_best(node: NodeState, config: RayConfig) -> NodeJoined:
    """The most that a node could give. GPU memory that no option names is known only once an agent runs there."""
    size = 1 << 50 if config.gpu_memory_gb is None else int(config.gpu_memory_gb * 2**30)
    return NodeJoined(0, int(node.cpus * config.cpu_allocation_percentage * UNIT), node.memory, (size,) * node.gpus)
