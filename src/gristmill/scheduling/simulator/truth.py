"""The keys of all random numbers of a simulation, and the outputs of a step. Both are known before anything runs."""

from __future__ import annotations

from gristmill.scheduling.simulator.chance import mix
from gristmill.scheduling.simulator.model import Data, StepModel


def source_key(seed: int, number: int) -> int:
    return mix(mix(0, seed), number)


def service_key(data: Data, step: int) -> int:
    return mix(data.key, 2000 + step)


def outputs_of(model: StepModel, step: int, d: Data) -> list[Data]:
    """Return the outputs of a step for a task."""
    if model.fan_out == 1:
        return [d]
    return [d.child(position) for position in range(model.outputs(mix(d.key, 1000 + step)))]
