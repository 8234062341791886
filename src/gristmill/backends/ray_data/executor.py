"""`RayDataExecutor`: runs a plan as a Ray Data dataset."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from gristmill.backends.base import Executor, Plan, RunRecord, Step
from gristmill.backends.bridge.books import Books, kept_up_to_date, wait_for_teardowns
from gristmill.backends.bridge.cluster import at_work, attempts_of, check_fits, gpus_of, smallest_gpu
from gristmill.backends.bridge.initial import packed
from gristmill.backends.bridge.process import RemoteClerk
from gristmill.backends.bridge.progress import ProgressLines
from gristmill.backends.bridge.reports import Made
from gristmill.backends.capabilities import check
from gristmill.backends.engine.names import LocalNames, pickle_steps
from gristmill.backends.engine.outputs import KeptOutputs
from gristmill.backends.ray_data.config import RayDataConfig
from gristmill.backends.step_runner import overrides
from gristmill.core.connection import connected, import_ray
from gristmill.errors import PipelineError, PlanError
from gristmill.tasks import Task

_TEARDOWN_S = 10.0
_MANY = 1_000_000
"""Tasks that a process may run before it is replaced: no limit, but another one for each step. Ray Data fuses tasks
that ask for the same, and what the planner has kept apart should spread over workers."""
_GB = 2**30


class RayDataExecutor(Executor):
    """Runs pipelines as Ray Data datasets, for those who have that.

        result = pipeline.run(RayDataExecutor(config={"address": "auto"}))

    Steps with a setup, a teardown or a GPU are actor pools, of ``num_workers()`` or as many as Ray Data finds useful;
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
        books = Books(plan, self.ignore_failures, progress)
        with ExitStack() as stack:
            local = LocalNames()
            stack.callback(local.close)
            stages = pickle_steps(plan, local)
            stack.enter_context(connected(ray, self.config.address))
            stack.callback(books.close)
            attempts = attempts_of(plan, self.config.max_attempts)
            arguments = _pools(ray, plan, smallest_gpu(ray, plan, self.config.gpu_memory_gb))
            clerk = stack.enter_context(at_work(ray, stages, attempts))
            tasks = packed(initial_tasks, books, local)
            dataset = self._dataset(ray, plan, clerk, tasks, attempts, arguments, outputs.wanted)
            if dataset is not None:
                self._run(ray, dataset, clerk, books, outputs)
            for line in books.messages:
                print(line, file=sys.stderr)
            return books.record(outputs)

    def _dataset(
        self,
        ray: ModuleType,
        plan: Plan,
        clerk: RemoteClerk,
        tasks: Iterable[Made],
        attempts: list[int],
        arguments: list[dict[str, Any]],
        wanted: bool,
    ) -> Any:
        """The plan as a dataset; None if there is nothing to do."""
        import ray.data

        from gristmill.backends.ray_data.steps import StepActor, StepFunction, table_of

        context = ray.data.DataContext.get_current().copy()
        context.target_max_block_size = 1  # each task is a block: what a step makes of one spreads over workers
        context.max_errored_blocks = 0  # what is lost is never ignored; failures are dealt with before they get there
        context.enable_progress_bars = self.config.progress
        refs = [ray.put(table_of(task)) for task in tasks]
        if not refs:
            return None
        last = len(plan.steps) - 1
        with ray.data.DataContext.current(context):
            dataset = ray.data.from_arrow_refs(refs)
            for i, step in enumerate(plan.steps):
                given = (clerk, i, attempts[i], wanted or i < last)
                work: dict[str, Any] = {"fn": StepFunction(*given).__call__}
                if has_actors(step):
                    work = {"fn": StepActor, "fn_constructor_args": given}
                dataset = dataset.map_batches(
                    **work,
                    **arguments[i],
                    batch_size=step.batch_size,
                    batch_format="pyarrow",
                )
        return dataset

    def _run(self, ray: ModuleType, dataset: Any, clerk: RemoteClerk, books: Books, outputs: KeptOutputs) -> None:
        def ask() -> Any:
            return clerk.call("news")

        try:
            with kept_up_to_date(books, ask):
                try:
                    _collect(ray, dataset, outputs)
                finally:
                    clerk.call("close")
        except Exception as error:  # Ray's errors have no common base that is worth naming
            reason = books.fatal or f"Ray Data ended it: {type(error).__name__}: {error}"
            raise PipelineError(f"{books.plan.name!r} was stopped: {reason}") from error
        books.check_complete()
        wait_for_teardowns(books, ask, _TEARDOWN_S)


def _collect(ray: ModuleType, dataset: Any, outputs: KeptOutputs) -> None:
    from gristmill.backends.ray_data.steps import packed_of

    for bundle in dataset.iter_internal_ref_bundles():
        for ref in bundle.block_refs:
            if outputs.wanted:
                for label, payload in packed_of(ray.get(ref)):
                    outputs.add(label, payload)


def has_actors(step: Step) -> bool:
    """Whether a step's workers begin or end with something; or use a GPU, where Ray ends a process after each task."""
    hooks = any(overrides(stage, hook) for stage in step.stages for hook in ("setup", "teardown"))
    return hooks or step.resources.requires_gpu


def _pools(ray: ModuleType, plan: Plan, gpu_bytes: int) -> list[dict[str, Any]]:
    """What each step asks of Ray Data. Raises `PlanError` if the cluster has no room."""
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
                f"but the Ray cluster has {total[name]:g}: Ray Data would wait for ever. Ask for less, or use "
                "RayExecutor, whose steps take turns."
            )
    return pools


def _fitting(total: Mapping[str, float], cpus: float, gpus: float) -> int:
    counts = [total[name] // n for name, n in (("CPU", cpus), ("GPU", gpus)) if n]
    return int(min(counts, default=1))
