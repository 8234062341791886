"""`RayDataExecutor`: runs a plan as a Ray Data dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.backends.base import Plan, Step
from gristmill.backends.bridge.cluster import check_fits, gpus_of
from gristmill.backends.bridge.collector import PackedTask
from gristmill.backends.bridge.executor import BridgeConfig, BridgeExecutor
from gristmill.backends.bridge.process import RemoteCollector, StepWork
from gristmill.backends.engine.executor_config import flag
from gristmill.backends.step_runner import overrides
from gristmill.core.connection import import_ray
from gristmill.errors import PlanError

_MANY = 1_000_000
"""How many tasks a process may run before Ray replaces it: no limit, but a different number for each step. Ray Data
fuses steps with equal arguments, and steps that the planner keeps apart should spread over workers."""
_GB = 2**30


@dataclass(frozen=True)
class RayDataConfig(BridgeConfig):
    """Options with their defaults."""

    executor = "RayDataExecutor"

    progress: bool = False
    """Whether Ray Data shows its progress bars."""

    def _check(self) -> None:
        super()._check()
        flag("progress", self.progress)


class RayDataExecutor(BridgeExecutor):
    """Runs pipelines as Ray Data datasets, for users of Ray Data.

        result = pipeline.run(RayDataExecutor(config={"address": "auto"}))

    Steps with a setup, a teardown or a GPU are actor pools, of ``num_workers()`` or as many as Ray Data chooses;
    all others are tasks. The options are those of `RayDataConfig`. What Ray Data cannot do for a pipeline is an error
    or a warning before it starts: see docs/executors.md.
    """

    name = "ray_data"
    scheduler = "Ray Data"
    config_class = RayDataConfig
    config: RayDataConfig

    def import_ray(self) -> Any:
        return import_ray("RayDataExecutor", "ray-data", "ray.data")

    def inputs(self, ray: Any, tasks: Iterable[PackedTask]) -> Sequence[Any]:
        from gristmill.backends.ray_data.steps import table_of

        return [ray.put(table_of(task)) for task in tasks]

    def described(self, ray: Any, plan: Plan, work: list[StepWork], gpu_bytes: int) -> list[Any]:
        """Return the arguments of `map_batches` for each step."""
        from gristmill.backends.ray_data.steps import StepActor, StepFunction

        described = []
        for step, one, pool in zip(plan.steps, work, _pools(ray, plan, gpu_bytes), strict=True):
            fn: dict[str, Any] = {"fn": StepFunction(one).__call__}
            if has_actors(step):
                fn = {"fn": StepActor, "fn_constructor_args": (one,)}
            described.append({**fn, **pool, "batch_size": step.batch_size, "batch_format": "pyarrow"})
        return described

    def outputs(
        self, ray: Any, steps: list[Any], inputs: Sequence[Any], collector: RemoteCollector, wanted: bool
    ) -> Iterator[PackedTask]:
        from gristmill.backends.ray_data.steps import packed_of

        context = ray.data.DataContext.get_current().copy()
        context.target_max_block_size = 1  # each task is a block: the outputs of a task spread over workers
        context.max_errored_blocks = 0  # a lost block is never ignored; Ray Data does not see failures of stages
        context.enable_progress_bars = self.config.progress
        with ray.data.DataContext.current(context):
            dataset = ray.data.from_arrow_refs(inputs)
            for arguments in steps:
                dataset = dataset.map_batches(**arguments)
        try:
            for bundle in dataset.iter_internal_ref_bundles():
                for ref in bundle.block_refs if wanted else ():
                    yield from packed_of(ray.get(ref))
        finally:
            collector.call("close")


def has_actors(step: Step) -> bool:
    """Whether a step runs in actors: it has a setup or teardown, or a GPU (Ray ends a GPU process after each task)."""
    hooks = any(overrides(stage, hook) for stage in step.stages for hook in ("setup", "teardown"))
    return hooks or step.resources.requires_gpu


def _pools(ray: Any, plan: Plan, gpu_bytes: int) -> list[dict[str, Any]]:
    """Return the arguments of `map_batches` for each step. Raises `PlanError` if the cluster lacks the capacity."""
    from ray.data import ActorPoolStrategy, TaskPoolStrategy

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    total = {name: sum(node.get(name, 0.0) for node in nodes) for name in ("CPU", "GPU")}
    taken = {"CPU": 0.0, "GPU": 0.0}
    free = {"CPU": 0.0, "GPU": 0.0}
    pools = []
    for i, step in enumerate(plan.steps):
        r = step.resources
        gpus = gpus_of(r, gpu_bytes)
        check_fits(step, gpus, nodes)
        pool: dict[str, Any] = {"num_cpus": r.cpus, "num_gpus": gpus or None}
        if r.memory_gb:
            pool["memory"] = int(r.memory_gb * _GB)
        if has_actors(step):
            least = step.num_workers or 1
            most = step.num_workers or max(1, _fitting(total, r.cpus, gpus))
            pool["compute"] = ActorPoolStrategy(min_size=least, max_size=most, max_tasks_in_flight_per_actor=2)
            taken = {"CPU": taken["CPU"] + least * r.cpus, "GPU": taken["GPU"] + least * gpus}
        else:
            pool["compute"] = TaskPoolStrategy(size=step.num_workers)
            pool["max_calls"] = _MANY + i
            free = {"CPU": max(free["CPU"], r.cpus), "GPU": max(free["GPU"], gpus)}
        pools.append(pool)
    for name in total:
        if taken[name] + free[name] > total[name]:
            raise PlanError(
                f"the actors of all steps need {taken[name]:g} {name}s at once, and tasks {free[name]:g} more, "
                f"but the Ray cluster has {total[name]:g}: Ray Data would wait forever. Ask for less, or use "
                "RayExecutor, whose steps take turns."
            )
    return pools


def _fitting(total: Mapping[str, float], cpus: float, gpus: float) -> int:
    counts = [total[name] // n for name, n in (("CPU", cpus), ("GPU", gpus)) if n]
    return int(min(counts, default=1))
