"""A load: a job as nodes, stages with their times, and a number of inputs. Runs are measured and simulated as loads."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

GB = 1 << 30


@dataclass(frozen=True, slots=True)
class NodeModel:
    """One node. A stage with a GPU takes ``mean_s / gpu_speed`` on it, any other ``mean_s / cpu_speed``."""

    cpus: float
    gpus: int = 0
    memory_gb: float = 0.0
    """0: four GB for each CPU."""
    gpu_memory_gb: float = 80.0
    cpu_speed: float = 1.0
    gpu_speed: float = 1.0

    @property
    def memory(self) -> int:
        return int((self.memory_gb or 4 * self.cpus) * GB)


@dataclass(frozen=True, slots=True)
class StageModel:
    """One stage: what its workers occupy, and how long a task takes."""

    name: str
    cpus: float = 1.0
    gpus: float = 0.0
    mean_s: float = 1.0
    """Mean service time of a task; lognormal."""
    cv: float = 0.0
    """Standard deviation of the service time, as a share of its mean."""
    setup_s: float = 0.0
    """Mean setup of a worker; uniform within 10 %."""
    outputs_per_input: float = 1.0
    memory_gb: float = 0.0
    gpu_memory_gb: float = 0.0
    output_mb: float = 1.0
    """Size of each output in MB of 1024 x 1024 bytes."""
    batch_size: int = 1
    workers: int | None = None
    chunk: int = 0
    """Outputs that a generator delivers at a time; 0: all of a task at its end."""
    overhead_s: float = 0.0
    """Time between two dispatches in which a worker that has work is not busy: messages."""


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """From its ``after_tasks``-th task on, a stage's mean is multiplied by ``mean_factor``."""

    stage: str
    after_tasks: int
    mean_factor: float


@dataclass(frozen=True, slots=True)
class Load:
    """A job to simulate."""

    nodes: tuple[NodeModel, ...]
    stages: tuple[StageModel, ...]
    inputs: int
    name: str = "load"
    changes: tuple[SpeedChange, ...] = ()
    input_mb: float = 1.0
    budget_gb: float = 0.0
    """Memory for tasks that wait or run; 0: a quarter of the nodes' memory."""
    shared_cpu: bool = False
    """CPU stages run on shared workers, as in the executors; otherwise each worker serves one stage."""
    ideal_s: float = 0.0
    """Makespan at the best steady throughput, if the load states it."""
    start_s: float = 0.0
    """From the command to start a worker until it runs, before its setup."""
    leave_s: float = 0.0
    """From the command to stop a worker until it has exited."""
    tick_s: float = 5.0
    """Time between the ticks that the scheduler receives."""
    autoscale_interval_s: float = 180.0
    batch_mode: bool = False

    @property
    def budget(self) -> int:
        return int(self.budget_gb * GB) or sum(node.memory for node in self.nodes) // 4

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which `gristmill simulate` reads, without defaults."""
        return {
            **_without_defaults(self),
            "nodes": [_without_defaults(node) for node in self.nodes],
            "stages": [_without_defaults(stage) for stage in self.stages],
            **({"changes": [asdict(change) for change in self.changes]} if self.changes else {}),
        }

    def write(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    def factor_after(self, stage: int, served: int) -> float:
        """Return the factor on a stage's mean after ``served`` tasks."""
        factor = 1.0
        for change in self.changes:
            if change.stage == self.stages[stage].name and served >= change.after_tasks:
                factor *= change.mean_factor
        return factor


def _without_defaults(x: NodeModel | StageModel | Load) -> dict[str, Any]:
    """Return the fields as plain values, without those that have their defaults."""
    defaults = {f.name: f.default for f in fields(x)}
    return {key: value for key, value in asdict(x).items() if value != defaults[key]}
