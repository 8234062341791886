"""What chance will do in a simulation, known beforehand: the truth that a clairvoyant planner may use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, pstdev

from gristmill.scheduling.simulator.chance import lognormal, mix
from gristmill.scheduling.simulator.loads import Load
from gristmill.scheduling.simulator.model import Data, StepModel


def source_key(seed: int, number: int) -> int:
    return mix(mix(0, seed), number)


def service_key(data: Data, step: int) -> int:
    return mix(data.key, 2000 + step)


def outputs_of(model: StepModel, step: int, d: Data) -> list[Data]:
    """What a step makes of a task."""
    if model.fan_out == 1:
        return [d]
    return [d.child(position) for position in range(model.outputs(mix(d.key, 1000 + step)))]


def realised(load: Load, models: Sequence[StepModel], seed: int) -> Load:
    """The load with the service times, their spread and the fan-outs that this seed draws."""
    tasks = [Data("", (), source_key(seed, number)) for number in range(load.inputs)]
    stages = []
    for step, (stage, model) in enumerate(zip(load.stages, models, strict=True)):
        times = [lognormal(service_key(d, step), stage.cv) for d in tasks]
        made = [out for d in tasks for out in outputs_of(model, step, d)]
        n = len(tasks)
        if n:
            mean = fmean(times)
            stage = replace(stage, mean_s=stage.mean_s * mean, cv=pstdev(times) / mean, outputs_per_input=len(made) / n)
        stages.append(stage)
        tasks = made
    return replace(load, stages=tuple(stages))
