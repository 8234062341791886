"""The random draws of a load's seed, known beforehand: a clairvoyant planner may use them."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, pstdev

from gristmill.scheduling.simulator.draws import lognormal
from gristmill.scheduling.simulator.loads import Load
from gristmill.scheduling.simulator.model import Data, outputs_of, service_key, source_key
from gristmill.scheduling.simulator.simulation import step_models


def drawn(load: Load, seed: int) -> Load:
    """The load with the service times, their spread and the fan-outs that this seed draws."""
    tasks = [Data("", (), source_key(seed, number)) for number in range(load.inputs)]
    stages = []
    for step, (stage, model) in enumerate(zip(load.stages, step_models(load), strict=True)):
        times = [lognormal(service_key(d, step), stage.cv) for d in tasks]
        made = [out for d in tasks for out in outputs_of(model, step, d)]
        n = len(tasks)
        if n:
            mean = fmean(times)
            stage = replace(stage, mean_s=stage.mean_s * mean, cv=pstdev(times) / mean, outputs_per_input=len(made) / n)
        stages.append(stage)
        tasks = made
    return replace(load, stages=tuple(stages))
