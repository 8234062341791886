"""A plan and options as the scheduler wants them."""

from __future__ import annotations

from gristmill.backends.base import Plan, Step
from gristmill.backends.engine.executor_config import EngineConfig
from gristmill.backends.step_runner import overrides
from gristmill.scheduling import SchedulerConfig, StepSpec
from gristmill.scheduling.profile import Profile
from gristmill.scheduling.settings import UNIT

_GB = 2**30


def specs_of(plan: Plan, config: EngineConfig) -> list[StepSpec]:
    """What the scheduler must know of all steps, with what an earlier run has measured of them."""
    specs = [step_spec(step, config) for step in plan.steps]
    return config.profile.apply(specs) if isinstance(config.profile, Profile) else specs


def step_spec(step: Step, config: EngineConfig) -> StepSpec:
    """What the scheduler must know of a step."""
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
