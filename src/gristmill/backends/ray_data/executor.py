"""`RayDataExecutor`: runs a plan as a Ray Data dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from gristmill.backends.base import Executor, Plan, RunRecord, Step
from gristmill.backends.bridge.accounts import RunAccounts, following, wait_for_teardowns
from gristmill.backends.bridge.cluster import attempts_of, check_fits, gpus_of, running_collector, smallest_gpu
from gristmill.backends.bridge.process import RemoteCollector
from gristmill.backends.bridge.progress import ProgressLines
from gristmill.backends.bridge.reports import PackedTask
from gristmill.backends.capabilities import check
from gristmill.backends.engine.names import LocalNames, pickle_steps
from gristmill.backends.engine.outputs import KeptOutputs
from gristmill.backends.ray_data.ray_data_config import RayDataConfig
from gristmill.backends.step_runner import overrides
from gristmill.core.connection import connected, import_ray
from gristmill.errors import PlanError
from gristmill.logs import logger
from gristmill.tasks import Task

_TEARDOWN_S = 10.0
_MANY = 1_000_000
"""How many tasks a process may run before Ray replaces it: no limit, but a different number for each step. Ray Data
fuses steps with equal arguments, and steps that the planner keeps apart should spread over workers."""
_GB = 2**30


class RayDataExecutor(Executor):
    """Runs pipelines as Ray Data datasets, for users of Ray Data.

        result = pipeline.run(RayDataExecutor(config={"address": "auto"}))

    Steps with a setup, a teardown or a GPU are actor pools, of ``num_workers()`` or as many as Ray Data chooses;
    all others are tasks. The options are those of `RayDataConfig`. What Ray Data cannot do for a pipeline is an error
    or a warning before it starts: see docs/executors.md.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.config = RayDataConfig.of(config)

    @property
    def ignore_failures(self) -> bool:
        return self.config.ignore_failures

    @contextmanager
    def several(self) -> Iterator[None]:
        with connected(import_ray("RayDataExecutor", "ray-data", "ray.data"), self.config.address):
            yield

    def execute(self, plan: Plan, initial_tasks: Iterable[Task[Any]] | None, keep_outputs: bool | None) -> RunRecord:
        check(plan, "ray_data")
        ray = import_ray("RayDataExecutor", "ray-data", "ray.data")
        outputs = KeptOutputs(keep_outputs, initial_tasks is not None)
        progress = ProgressLines(self.config.view, self.config.logging_interval)
        accounts = RunAccounts(plan, self.ignore_failures, progress)
        with ExitStack() as stack:
            local = LocalNames()
            stack.callback(local.close)
            stages = pickle_steps(plan, local)
            stack.enter_context(connected(ray, self.config.address))
            stack.callback(accounts.close)
            attempts = attempts_of(plan, self.config.max_attempts)
            arguments = _pools(ray, plan, smallest_gpu(ray, plan, self.config.gpu_memory_gb))
            collector = stack.enter_context(running_collector(ray, stages, attempts))
            tasks = accounts.pack_initial(initial_tasks, local)
            dataset = self._dataset(ray, plan, collector, tasks, attempts, arguments, outputs.wanted)
            if dataset is not None:
                self._run(ray, dataset, collector, accounts, outputs)
            for message in accounts.messages:
                logger.warning(message)
            return accounts.record(outputs)

    def _dataset(
        self,
        ray: ModuleType,
        plan: Plan,
        collector: RemoteCollector,
        tasks: Iterable[PackedTask],
        attempts: list[int],
        arguments: list[dict[str, Any]],
        wanted: bool,
    ) -> Any:
        """Return the plan as a dataset; None if there are no tasks."""
        import ray.data

        from gristmill.backends.bridge.process import StepWork
        from gristmill.backends.ray_data.steps import StepActor, StepFunction, table_of

        context = ray.data.DataContext.get_current().copy()
        context.target_max_block_size = 1  # each task is a block: the outputs of a task spread over workers
        context.max_errored_blocks = 0  # a lost block is never ignored; Ray Data does not see failures of stages
        context.enable_progress_bars = self.config.progress
        refs = [ray.put(table_of(task)) for task in tasks]
        if not refs:
            return None
        last = len(plan.steps) - 1
        with ray.data.DataContext.current(context):
            dataset = ray.data.from_arrow_refs(refs)
            for i, step in enumerate(plan.steps):
                work = StepWork(collector, i, attempts[i], wanted or i < last)
                fn: dict[str, Any] = {"fn": StepFunction(work).__call__}
                if has_actors(step):
                    fn = {"fn": StepActor, "fn_constructor_args": (work,)}
                dataset = dataset.map_batches(**fn, **arguments[i], batch_size=step.batch_size, batch_format="pyarrow")
        return dataset

    def _run(
        self, ray: ModuleType, dataset: Any, collector: RemoteCollector, accounts: RunAccounts, outputs: KeptOutputs
    ) -> None:
        try:
            with following(accounts, collector.take_update):
                try:
                    _collect(ray, dataset, outputs)
                finally:
                    collector.call("close")
        except Exception as error:  # Ray's errors have no common base that is worth naming
            raise accounts.stopped(f"Ray Data ended it: {type(error).__name__}: {error}") from error
        accounts.check_complete()
        wait_for_teardowns(accounts, collector.take_update, _TEARDOWN_S)


def _collect(ray: ModuleType, dataset: Any, outputs: KeptOutputs) -> None:
    from gristmill.backends.ray_data.steps import packed_of

    for bundle in dataset.iter_internal_ref_bundles():
        for ref in bundle.block_refs:
            if outputs.wanted:
                for label, payload in packed_of(ray.get(ref)):
                    outputs.add(label, payload)


def has_actors(step: Step) -> bool:
    """Whether a step runs in actors: it has a setup or teardown, or a GPU (Ray ends a GPU process after each task)."""
    hooks = any(overrides(stage, hook) for stage in step.stages for hook in ("setup", "teardown"))
    return hooks or step.resources.requires_gpu


def _pools(ray: ModuleType, plan: Plan, gpu_bytes: int) -> list[dict[str, Any]]:
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
