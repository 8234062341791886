"""`XennaExecutor`: runs a plan as a pipeline of Cosmos Xenna."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from gristmill.backends.base import Executor, Plan, RunRecord, Step
from gristmill.backends.bridge.books import Books, kept_up_to_date
from gristmill.backends.bridge.cluster import at_work, attempts_of, gpus_of, smallest_gpu
from gristmill.backends.bridge.initial import packed
from gristmill.backends.bridge.process import RemoteClerk
from gristmill.backends.bridge.progress import ProgressLines
from gristmill.backends.capabilities import check
from gristmill.backends.engine.names import LocalNames, pickle_steps
from gristmill.backends.engine.outputs import KeptOutputs
from gristmill.backends.xenna.config import XennaConfig
from gristmill.core.clusters import ACTORS_ASKED_FOR, LIMITS
from gristmill.core.connection import connected, environment, import_ray
from gristmill.errors import PipelineError, PlanError
from gristmill.stages.core import worker_count
from gristmill.tasks import Task

WORKERS = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
"""What its workers must be started with: Xenna chooses the GPUs of each."""
ENVIRONMENT = LIMITS | WORKERS
"""What the processes of a cluster must be started with so that Xenna can use it."""
SPEC_FIELDS = (
    "num_workers",
    "num_run_attempts_python",
    "num_workers_per_node",
    "num_setup_attempts_python",
    "slots_per_actor",
    "worker_max_lifetime_m",
    "worker_restart_interval_m",
    "max_setup_failure_percentage",
    "over_provision_factor",
)
"""What `xenna_stage_spec()` may say; ``num_run_attempts_python`` is taken for the stage's ``max_attempts``."""


class XennaExecutor(Executor):
    """Runs pipelines on Cosmos Xenna, for those who have that.

        result = pipeline.run(XennaExecutor(config={"execution_mode": "batch"}))

    The options are those of `XennaConfig`. A stage may have a method ``xenna_stage_spec()`` that returns a dict for
    Xenna's stage spec (`SPEC_FIELDS`). What Xenna cannot do for a pipeline is an error or a warning before it starts:
    see docs/executors.md.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self.config = XennaConfig.of(config)

    @property
    def ignore_failures(self) -> bool:
        return self.config.ignore_failures

    @contextmanager
    def several(self) -> Iterator[None]:
        with self._connected(import_ray("XennaExecutor", "xenna")):
            yield

    def _connected(self, ray: Any) -> AbstractContextManager[None]:
        job = {"env_vars": WORKERS}  # others may use the same cluster
        return connected(ray, self.config.address, ENVIRONMENT, runtime_env=job, include_dashboard=True)

    def execute(self, plan: Plan, initial_tasks: Iterable[Task[Any]] | None, keep_outputs: bool | None) -> RunRecord:
        check(plan, "xenna")
        fields = [_spec_fields(step) for step in plan.steps]
        xenna = import_xenna()
        ray = import_ray("XennaExecutor", "xenna")
        outputs = KeptOutputs(keep_outputs, initial_tasks is not None)
        progress = ProgressLines(self.config.view, self.config.logging_interval)
        books = Books(plan, self.ignore_failures, progress)
        with ExitStack() as stack:
            local = LocalNames()
            stack.callback(local.close)
            stages = pickle_steps(plan, local)
            stack.enter_context(self._connected(ray))
            # its monitor asks whatever cluster it finds first on this machine, unless it is told which
            stack.enter_context(environment({"RAY_API_SERVER_ADDRESS": ray.get_runtime_context().gcs_address}))
            _check_cluster(ray)
            stack.enter_context(_nobody_stays(ray))
            stack.callback(books.close)
            attempts = [
                given.pop("num_run_attempts_python", None) or n
                for given, n in zip(fields, attempts_of(plan, self.config.max_attempts), strict=True)
            ]
            gpu_bytes = smallest_gpu(ray, plan, self.config.gpu_memory_gb)
            clerk = stack.enter_context(at_work(ray, stages, attempts))
            specs = [
                _stage_spec(xenna, plan, i, clerk, attempts[i], outputs.wanted, gpu_bytes, fields[i])
                for i in range(len(plan.steps))
            ]
            self._check_room(xenna, specs)
            tasks = [(task.label, task.payload) for task in packed(initial_tasks, books, local)]
            if tasks:
                self._run(xenna, xenna.PipelineSpec(tasks, specs, self._pipeline_config(xenna)), clerk, books, outputs)
            return books.record(outputs)

    def _pipeline_config(self, xenna: ModuleType) -> Any:
        config = self.config
        quiet = xenna.VerbosityLevel.NONE
        streaming = config.execution_mode == "streaming"
        return xenna.PipelineConfig(
            execution_mode=xenna.ExecutionMode.STREAMING if streaming else xenna.ExecutionMode.BATCH,
            logging_interval_s=config.logging_interval,
            return_last_stage_outputs=True,
            cpu_allocation_percentage=config.cpu_allocation_percentage,
            actor_pool_verbosity_level=quiet,
            mode_specific=xenna.StreamingSpecificSpec(
                autoscale_interval_s=config.autoscale_interval_s,
                autoscaler_verbosity_level=quiet,
                executor_verbosity_level=quiet,
            )
            if streaming
            else None,
        )

    def _check_room(self, xenna: ModuleType, specs: list[Any]) -> None:
        """Refuse what Xenna would refuse, before anything starts: each step needs its workers at the same time."""
        from cosmos_xenna.ray_utils.cluster import make_cluster_resources_from_ray_nodes

        cluster = make_cluster_resources_from_ray_nodes(self.config.cpu_allocation_percentage)
        there = cluster.total_pool()
        needs = [(spec.stage.cpus, spec.stage.gpus, spec.num_workers or 1) for spec in specs]
        together = sum if self.config.execution_mode == "streaming" else max
        for name, have, wanted in (
            ("CPUs", there.cpus, together([cpus * n for cpus, _, n in needs])),
            ("GPUs", there.gpus, together([gpus * n for _, gpus, n in needs])),
        ):
            if wanted > have:
                raise PlanError(
                    f"the steps need {wanted:g} {name}, and Xenna can use {have:g} of the Ray cluster "
                    f"(cpu_allocation_percentage={self.config.cpu_allocation_percentage:g}; whole CPUs, real GPUs). "
                    "In streaming mode each step needs a worker at the same time: ask for less, use "
                    'execution_mode "batch", or RayExecutor, whose steps take turns.'
                )

    def _run(self, xenna: ModuleType, spec: Any, clerk: RemoteClerk, books: Books, outputs: KeptOutputs) -> None:
        def ask() -> Any:
            return clerk.call("news")

        try:
            with kept_up_to_date(books, ask):
                for label, payload in xenna.run_pipeline(spec) or ():
                    outputs.add(label, payload)
        except Exception as error:  # Xenna raises whatever came up
            reason = books.fatal or f"Xenna ended it: {type(error).__name__}: {error}{_suspects(clerk, books.plan)}"
            raise PipelineError(f"{books.plan.name!r} was stopped: {reason}") from error
        books.check_complete()


def import_xenna() -> ModuleType:
    """Xenna, or a `PipelineError` that says how to get it."""
    try:
        from cosmos_xenna.pipelines import v1
    except ImportError as error:
        raise PipelineError(f"XennaExecutor needs cosmos-xenna ({error}): pip install 'gristmill[xenna]'") from error
    return v1  # type: ignore[no-any-return]


def _spec_fields(step: Step) -> dict[str, Any]:
    """What the stages of a step want Xenna to be told."""
    found: dict[str, Any] = {}
    for stage in step.stages:
        hook = getattr(stage, "xenna_stage_spec", None)
        given = hook() if hook is not None else {}
        if not isinstance(given, Mapping):
            raise PlanError(f"stage {stage.name!r}: xenna_stage_spec() returns a dict, not {given!r}.")
        for name, value in given.items():
            if name == "num_workers" and worker_count(stage) not in (None, value):
                raise PlanError(f"stage {stage.name!r}: num_workers() and xenna_stage_spec() say different numbers.")
            if name not in SPEC_FIELDS:
                raise PlanError(
                    f"stage {stage.name!r}: xenna_stage_spec() says {name!r}, but can say only: "
                    f"{', '.join(SPEC_FIELDS)}. Failures are handled by gristmill (max_attempts, ignore_failures)."
                )
            found[name] = value
    first = step.stages[0]
    found.setdefault("num_workers", step.num_workers)
    for name in ("worker_max_lifetime_m", "worker_restart_interval_m"):
        minutes = getattr(first, name)
        if minutes is not None:
            found.setdefault(name, max(1, round(minutes)))
    return found


def _stage_spec(
    xenna: ModuleType,
    plan: Plan,
    index: int,
    clerk: RemoteClerk,
    attempts: int,
    wanted: bool,
    gpu_bytes: int,
    fields: dict[str, Any],
) -> Any:
    from gristmill.backends.xenna.stage import named_step

    step = plan.steps[index]
    wanted = wanted or index < len(plan.steps) - 1
    gpus = gpus_of(step.resources, gpu_bytes)
    stage = named_step(step.name, clerk, index, attempts, wanted, step.batch_size, step.resources.cpus, gpus)
    return xenna.StageSpec(stage, **fields)


_LEFT = ("NodeResourceMonitor", "StageWorker", "ActorLocationTracker")
_END_S = 30.0


def _check_cluster(ray: ModuleType) -> None:
    """Xenna asks the dashboard about actors all the time, and ends a run if it does not answer."""
    from ray.util.state import list_actors

    try:
        list_actors(filters=[("state", "=", "ALIVE")], limit=ACTORS_ASKED_FOR)
    except Exception as error:  # Ray's own kinds differ between its versions
        said = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
        raise PlanError(
            "Xenna cannot use this Ray cluster: it asks the dashboard for "
            f"{ACTORS_ASKED_FOR} actors, and that fails ({str(error).partition(chr(10))[0][:300]}).\n"
            f"    start the cluster with its dashboard (pip install 'ray[default]') and with {said}."
        ) from error


@contextmanager
def _nobody_stays(ray: ModuleType) -> Iterator[None]:
    """End the processes of Xenna's actors, which wait for threads that never end, long after Ray has let them go."""
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # whatever it is, it must not hide how the run ended
            left: dict[str, list[int]] = {}
            for actor in _own_actors(ray):
                if actor.class_name in _LEFT and actor.pid and actor.node_id:
                    left.setdefault(actor.node_id, []).append(actor.pid)
            on = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
            end = ray.remote(_end)
            ray.get(
                [
                    end.options(num_cpus=0, scheduling_strategy=on(node, soft=True)).remote(pids)
                    for node, pids in left.items()
                ],
                timeout=_END_S,
            )


def _own_actors(ray: ModuleType) -> list[Any]:
    from ray.util.state import list_actors

    job = ray.get_runtime_context().get_job_id()
    return list(list_actors(filters=[("job_id", "=", job)], limit=ACTORS_ASKED_FOR, detail=True))


def _end(pids: list[int]) -> None:
    """On a node: end those of these processes that are Xenna's."""
    for pid in pids:
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/cmdline").read_bytes()
            if name.startswith(tuple(f"ray::{kind}".encode() for kind in _LEFT)):
                os.kill(pid, signal.SIGKILL)


def _suspects(clerk: RemoteClerk, plan: Plan) -> str:
    """What was being done when a worker died."""
    running = [f"task {label} in {plan.steps[step].name!r}" for step, label in clerk.call("running")[:10]]
    return f"\n    it was running: {', '.join(running)}" if running else ""
