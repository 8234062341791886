"""`XennaExecutor`: runs a plan as a pipeline of Cosmos Xenna."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from gristmill.backends.base import Plan, Step
from gristmill.backends.bridge.cluster import gpus_of
from gristmill.backends.bridge.collector import PackedTask
from gristmill.backends.bridge.executor import BridgeConfig, BridgeExecutor
from gristmill.backends.bridge.process import RemoteCollector, StepWork
from gristmill.backends.engine.executor_config import choice, number, share
from gristmill.core.connection import connected, import_ray
from gristmill.core.environment import ACTORS_ASKED_FOR, LIMITS, environment
from gristmill.errors import PipelineError, PlanError
from gristmill.stages.core import worker_count

WORKERS = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
"""Variables of Xenna's workers: Xenna chooses the GPUs of each."""
ENVIRONMENT = LIMITS | WORKERS
"""Variables that the processes of a cluster need so that Xenna can use it."""
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
"""The keys that `xenna_stage_spec()` may return; ``num_run_attempts_python`` is the stage's ``max_attempts``."""


@runtime_checkable
class SpecifiesXenna(Protocol):
    """A stage with fields of its own for Xenna's stage spec."""

    def xenna_stage_spec(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class XennaConfig(BridgeConfig):
    """Options with their defaults. ``logging_interval`` is also the seconds between two of Xenna's tables."""

    executor = "XennaExecutor"

    execution_mode: str = "streaming"
    cpu_allocation_percentage: float = 0.95
    autoscale_interval_s: float = 180

    def _check(self) -> None:
        super()._check()
        choice("execution_mode", self.execution_mode, ("streaming", "batch"))
        share("cpu_allocation_percentage", self.cpu_allocation_percentage)
        number("autoscale_interval_s", self.autoscale_interval_s, above=0)


class XennaExecutor(BridgeExecutor):
    """Runs pipelines on Cosmos Xenna, for users of Xenna.

        result = pipeline.run(XennaExecutor(config={"execution_mode": "batch"}))

    The options are those of `XennaConfig`. A stage may have a method ``xenna_stage_spec()`` that returns a dict for
    Xenna's stage spec (`SPEC_FIELDS`). If Xenna lacks something that a pipeline needs, there is
    an error or a warning before it starts: see docs/executors.md.
    """

    name = "xenna"
    scheduler = "Xenna"
    config_class = XennaConfig
    config: XennaConfig

    def import_ray(self) -> Any:
        import_xenna()
        return import_ray("XennaExecutor", "xenna")

    def check_plan(self, plan: Plan) -> None:
        super().check_plan(plan)
        for step in plan.steps:
            _spec_fields(step)

    def attempts(self, step: Step) -> int:
        return _spec_fields(step).get("num_run_attempts_python") or super().attempts(step)

    def connected(self, ray: Any) -> AbstractContextManager[None]:
        job = {"env_vars": WORKERS}  # other jobs may use the same cluster
        return connected(ray, self.config.address, ENVIRONMENT, runtime_env=job, include_dashboard=True)

    @contextmanager
    def session(self, ray: Any) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self.connected(ray))
            # without an address, its monitor asks the first cluster that it finds on this machine
            stack.enter_context(environment({"RAY_API_SERVER_ADDRESS": ray.get_runtime_context().gcs_address}))
            _check_cluster(ray)
            stack.enter_context(_leftovers_killed(ray))
            yield

    def inputs(self, ray: Any, tasks: Iterable[PackedTask]) -> Sequence[Any]:
        return list(tasks)

    def described(self, ray: Any, plan: Plan, work: list[StepWork], gpu_bytes: int) -> list[Any]:
        xenna = import_xenna()
        specs = [_stage_spec(xenna, step, one, gpu_bytes) for step, one in zip(plan.steps, work, strict=True)]
        self._check_capacity(specs)
        return specs

    def outputs(
        self, ray: Any, steps: list[Any], inputs: Sequence[Any], collector: RemoteCollector, wanted: bool
    ) -> Iterable[PackedTask]:
        xenna = import_xenna()
        found: Iterable[PackedTask] | None = xenna.run_pipeline(
            xenna.PipelineSpec(inputs, steps, self._pipeline_config(xenna))
        )
        return found or ()

    def running(self, collector: RemoteCollector, plan: Plan) -> str:
        tasks = [f"task {label} in {plan.steps[step].name!r}" for step, label in collector.call("running")[:10]]
        return f"\n    it was running: {', '.join(tasks)}" if tasks else ""

    def _pipeline_config(self, xenna: Any) -> Any:
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

    def _check_capacity(self, specs: list[Any]) -> None:
        """Raise `PlanError` if the cluster lacks the capacity: Xenna would refuse, but only after it has started."""
        from cosmos_xenna.ray_utils.cluster import make_cluster_resources_from_ray_nodes

        cluster = make_cluster_resources_from_ray_nodes(self.config.cpu_allocation_percentage)
        total = cluster.total_pool()
        needs = [(spec.stage.cpus, spec.stage.gpus, spec.num_workers or 1) for spec in specs]
        together = sum if self.config.execution_mode == "streaming" else max
        for name, have, wanted in (
            ("CPUs", total.cpus, together([cpus * n for cpus, _, n in needs])),
            ("GPUs", total.gpus, together([gpus * n for _, gpus, n in needs])),
        ):
            if wanted > have:
                raise PlanError(
                    f"the steps need {wanted:g} {name}, and Xenna can use {have:g} of the Ray cluster "
                    f"(cpu_allocation_percentage={self.config.cpu_allocation_percentage:g}; whole CPUs, real GPUs). "
                    "In streaming mode each step needs a worker at the same time: ask for less, use "
                    'execution_mode "batch", or RayExecutor, whose steps take turns.'
                )


def import_xenna() -> Any:
    """Return Xenna's module. Raises `PipelineError` with the command that installs it."""
    try:
        from cosmos_xenna.pipelines import v1
    except ImportError as error:
        raise PipelineError(f"XennaExecutor needs cosmos-xenna ({error}): pip install 'gristmill[xenna]'") from error
    return v1


def _spec_fields(step: Step) -> dict[str, Any]:
    """Return the keys of Xenna's stage spec that the stages of a step set."""
    found: dict[str, Any] = {}
    for stage in step.stages:
        if not isinstance(stage, SpecifiesXenna):
            continue
        given = stage.xenna_stage_spec()
        if not isinstance(given, Mapping):
            raise PlanError(f"stage {stage.name!r}: xenna_stage_spec() returns a dict, not {given!r}.")
        for name, value in given.items():
            if name == "num_workers" and worker_count(stage) not in (None, value):
                raise PlanError(f"stage {stage.name!r}: num_workers() and xenna_stage_spec() give different numbers.")
            if name not in SPEC_FIELDS:
                raise PlanError(
                    f"stage {stage.name!r}: xenna_stage_spec() has {name!r}, but can have only: "
                    f"{', '.join(SPEC_FIELDS)}. Failures are handled by gristmill (max_attempts, ignore_failures)."
                )
            found[name] = value
    first = step.stages[0]
    found.setdefault("num_workers", step.num_workers)
    for name, minutes in (
        ("worker_max_lifetime_m", first.worker_max_lifetime_m),
        ("worker_restart_interval_m", first.worker_restart_interval_m),
    ):
        if minutes is not None:
            found.setdefault(name, max(1, round(minutes)))
    return found


def _stage_spec(xenna: Any, step: Step, work: StepWork, gpu_bytes: int) -> Any:
    from gristmill.backends.xenna.stage import named_step

    fields = {name: value for name, value in _spec_fields(step).items() if name != "num_run_attempts_python"}
    gpus = gpus_of(step.resources, gpu_bytes)
    stage = named_step(step.name, work, step.batch_size, step.resources.cpus, gpus)
    return xenna.StageSpec(stage, **fields)


_LEFTOVERS = ("NodeResourceMonitor", "StageWorker", "ActorLocationTracker")
_END_S = 30.0


def _check_cluster(ray: ModuleType) -> None:
    """Raise `PlanError` if the dashboard does not answer: Xenna keeps asking it about actors, and needs answers."""
    from ray.util.state import list_actors

    try:
        list_actors(filters=[("state", "=", "ALIVE")], limit=ACTORS_ASKED_FOR)
    except Exception as error:  # Ray's own kinds differ between its versions
        variables = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
        raise PlanError(
            "Xenna cannot use this Ray cluster: it asks the dashboard for "
            f"{ACTORS_ASKED_FOR} actors, and that fails ({str(error).partition(chr(10))[0][:300]}).\n"
            f"    start the cluster with its dashboard (pip install 'ray[default]') and with {variables}."
        ) from error


@contextmanager
def _leftovers_killed(ray: ModuleType) -> Iterator[None]:
    """Kill the processes of Xenna's actors at the end: they wait for threads that never end."""
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # an error here must not hide how the run ended
            left: dict[str, list[int]] = {}
            for actor in _own_actors(ray):
                if actor.class_name in _LEFTOVERS and actor.pid and actor.node_id:
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
    """Kill those of these processes of this node that are Xenna's."""
    for pid in pids:
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/cmdline").read_bytes()
            if name.startswith(tuple(f"ray::{kind}".encode() for kind in _LEFTOVERS)):
                os.kill(pid, signal.SIGKILL)
