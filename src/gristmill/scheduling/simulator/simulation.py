"""Simulate a load: a run of the real scheduler in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

from gristmill.scheduling.events import NodeJoined
from gristmill.scheduling.log import RecordingScheduler
from gristmill.scheduling.profile import Profile, StageProfile
from gristmill.scheduling.scheduler import misfits
from gristmill.scheduling.settings import UNIT, SchedulerConfig, StepSpec
from gristmill.scheduling.simulator.draws import mix, uniform
from gristmill.scheduling.simulator.faults import Faults, bad_tasks, read_faults
from gristmill.scheduling.simulator.loads import GB, Load, LoadError, read_load
from gristmill.scheduling.simulator.model import SECOND, Conditions, StepModel
from gristmill.scheduling.simulator.result import SimulationResult, StageResult
from gristmill.scheduling.simulator.world import World

_MB = 1 << 20


def simulate(
    load: Load | Mapping[str, Any] | str | Path,
    seed: int = 1,
    profile: Profile | Mapping[str, Any] | str | Path | None = None,
    faults: Faults | Mapping[str, Any] | None = None,
) -> SimulationResult:
    """Simulate a load under the real scheduler in virtual time.

    ``load`` is a mapping or a JSON file with nodes, stages and inputs (docs/simulator.md); ``faults`` are
    given as `Faults` or a mapping like ``{"kill_every_s": 60, "slow_workers": 0.05}``. The same load, seed and faults
    give the same result and ``event_hash`` on every machine.

    >>> stages = [{"name": "read", "mean_s": 1.0}, {"name": "embed", "gpus": 1, "mean_s": 2.0, "setup_s": 10}]
    >>> result = simulate({"nodes": [{"cpus": 4, "gpus": 2}], "stages": stages, "inputs": 20})
    >>> result.work_lost_s, 30 < result.makespan_s < 36
    (0.0, True)
    """
    load = read_load(load)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"a seed is a whole number of 0 or more, not {seed!r}")
    check(load)
    world = make_world(load, seed, None if profile is None else Profile.read(profile), read_faults(faults))
    world.run(limit_us=1 << 62)
    return _result(load, seed, world)


def check(load: Load) -> None:
    """Raise `LoadError` if a stage fits on no node."""
    problems = misfits(step_specs(load), _nodes(load))
    if problems:
        raise LoadError(f"{load.name}: {problems[0]}")


def profile_of(load: Load, seed: int = 1, error: float = 0.3) -> Profile:
    """Return a profile as an earlier run might have measured it: each true figure is off by up to ``error``."""
    factors = ((1 - error + 2 * error * uniform(mix(mix(seed, 77), i))) for i in range(3 * len(load.stages)))
    return Profile(
        {
            stage.name: StageProfile(
                stage.mean_s * next(factors), stage.setup_s * next(factors), stage.outputs_per_input * next(factors)
            )
            for stage in load.stages
        }
    )


def make_world(load: Load, seed: int, profile: Profile | None = None, faults: Faults | None = None) -> World:
    """Return the virtual cluster of a load."""
    faults = faults or Faults()
    steps = step_specs(load)
    if profile is not None:
        steps = profile.apply(steps)
    models = step_models(load)
    bad = faults.poison or faults.raising or faults.hanging
    if bad:
        models = bad_tasks(faults, models, load.inputs, seed)
        steps = [replace(step, timeout_us=round(faults.timeout_s * SECOND)) for step in steps]
    config = SchedulerConfig(
        budget=load.budget,
        autoscale_interval_us=round(load.autoscale_interval_s * SECOND),
        batch_mode=load.batch_mode,
        ignore_failures=bool(bad),
    )
    conditions = Conditions(
        seed,
        source_bytes=int(load.input_mb * _MB),
        start_us=round(load.start_s * SECOND),
        leave_us=round(load.leave_s * SECOND),
        tick_us=round(load.tick_s * SECOND),
    )
    scheduler = RecordingScheduler(steps, config)
    return World(scheduler, models, load.inputs, _nodes(load), conditions, faults if faults != Faults() else None)


def step_specs(load: Load) -> list[StepSpec]:
    return [
        StepSpec(
            stage.name,
            cpu=round(stage.cpus * UNIT),
            gpu=round(stage.gpus * UNIT),
            gpu_memory=int(stage.gpu_memory_gb * GB),
            memory=int(stage.memory_gb * GB),
            batch_size=stage.batch_size,
            workers=stage.workers,
            dedicated=not load.shared_cpu,
            has_setup=stage.setup_s > 0,
        )
        for stage in load.stages
    ]


def step_models(load: Load) -> list[StepModel]:
    kinds = {_kind(node): node for node in load.nodes}
    return [
        StepModel(
            round(stage.mean_s * SECOND / (max(1, ceil(stage.outputs_per_input / stage.chunk)) if stage.chunk else 1)),
            fan_out=stage.outputs_per_input,
            out_bytes=int(stage.output_mb * _MB),
            setup_us=round(stage.setup_s * SECOND),
            cv=stage.cv,
            setup_spread=0.1,
            chunk=stage.chunk,
            overhead_us=round(stage.overhead_s * SECOND),
            changes=tuple((x.after_tasks, x.mean_factor) for x in load.changes if x.stage == stage.name),
            speeds={kind: node.gpu_speed if stage.gpus else node.cpu_speed for kind, node in kinds.items()},
        )
        for stage in load.stages
    ]


def _kind(node: Any) -> str:
    return "" if node.cpu_speed == node.gpu_speed == 1 else f"{node.cpu_speed:g}x{node.gpu_speed:g}"


def _nodes(load: Load) -> list[NodeJoined]:
    return [
        NodeJoined(i, round(node.cpus * UNIT), node.memory, (int(node.gpu_memory_gb * GB),) * node.gpus, _kind(node))
        for i, node in enumerate(load.nodes)
    ]


def _result(load: Load, seed: int, world: World) -> SimulationResult:
    s = world.scheduler.state
    assert isinstance(world.scheduler, RecordingScheduler)
    return SimulationResult(
        load=load.name,
        seed=seed,
        makespan_s=world.last_done / SECOND,
        workers_started=s.next_worker,
        work_lost_s=world.work_lost_us / SECOND,
        peak_queue_bytes=s.budget.peak,
        budget_bytes=load.budget,
        event_hash=world.scheduler.event_hash(),
        events=world.events,
        tasks_failed=sum(step.counts.tasks_failed for step in s.steps),
        aborted=world.aborted,
        stages=tuple(
            StageResult(
                step.spec.name,
                step.counts.tasks_done,
                step.counts.tasks_failed,
                step.times.busy_us / SECOND,
                group.available_us / SECOND,
                step.started,
                tuple((at / SECOND, n) for at, n in group.timeline),
            )
            for step in s.steps
            for group in (step if step.dedicated else s.shared,)
        ),
        decisions=tuple(s.decisions),
        stated=load,
    )
