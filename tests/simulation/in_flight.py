"""Random pipelines with several units in flight per worker."""

from __future__ import annotations

import random
from dataclasses import replace

from gristmill.scheduling.settings import StepSpec
from gristmill.scheduling.simulator.model import SECOND, StepModel
from tests.simulation.scenario import Scenario, random_scenario, some_bad


def in_flight_scenario(seed: int) -> Scenario:
    """The scenario of a seed, with units in flight at one step or more."""
    scenario = random_scenario(seed)
    r = random.Random(f"in flight {seed}")
    steps, models = list(scenario.steps), list(scenario.models)
    chosen = [i for i in range(len(steps)) if r.random() < 0.6] or [r.randrange(len(steps))]
    for i in chosen:
        steps[i] = _step(r, steps[i], models[i])
        crowded = models[i].service_us <= SECOND // 20
        models[i] = replace(
            models[i],
            stubborn=frozenset() if crowded else some_bad(r, scenario.sources, steps[i].slices, 0.2),
            blocks=frozenset() if crowded else some_bad(r, scenario.sources, steps[i].slices, 0.2),
        )
    faults = scenario.faults
    if r.random() < 0.3:
        faults = replace(faults, oom_every_s=r.choice([0.5, 2, 10]), until_s=faults.until_s or 30.0)
    if r.random() < 0.3:
        faults = replace(faults, kill_every_s=r.choice([1, 5, 20]), until_s=faults.until_s or 30.0)
    if faults.oom_every_s:
        scenario.config = replace(scenario.config, setup_attempts=1000)
    interrupt = r.randrange(60 * SECOND) if r.random() < 0.08 else None
    sources = scenario.sources * r.choice([1, 2, 3])
    return replace(scenario, steps=steps, models=models, faults=faults, sources=sources, interrupt_us=interrupt)


def _step(r: random.Random, spec: StepSpec, model: StepModel) -> StepSpec:
    spec = replace(
        spec,
        dedicated=True,
        batch_size=1,
        workers=r.choice([None, 1, 1, 2]),
        in_flight=r.choice([1, 2, 2, 3, 4, 8, 64]),
        streams=model.chunk > 0,
        lifetime_us=r.choice([None, 8 * SECOND]),
    )
    if not spec.uses_gpu and r.random() < 0.1:
        return replace(spec, cpu=0, memory=0)  # it only waits
    return spec
