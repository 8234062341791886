"""The measurements of a run's steps: plain values that are stored as JSON and read back with checks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from gristmill.scheduling.profile import Profile, StageProfile

FORMAT = 1
"""Number of the format of stored measurements. Those of another format are ignored."""
_MOST = 1e18


class MeasureError(ValueError):
    """Stored measurements cannot be read. The message names what is wrong."""


@dataclass(frozen=True, slots=True)
class MachineKind:
    """The kind of machine that a run was measured on."""

    cpu: str
    cores: float
    gpus: tuple[str, ...] = ()
    """The model of each GPU; empty where there is none, and for logical GPUs."""

    @property
    def name(self) -> str:
        gpus = f", {len(self.gpus)} x {self.gpus[0]}" if self.gpus else ""
        return f"{self.cores:g} x {self.cpu}{gpus}"


@dataclass(frozen=True, slots=True)
class StepMeasure:
    """One step: totals over the run, and what a worker of it occupied."""

    name: str
    key: str = ""
    """Hash of the code and configuration of its stages."""
    tasks: int = 0
    items: int = 0
    outputs: int = 0
    busy_s: float = 0.0
    """Worker time of all tasks."""
    cv: float = 0.0
    """Standard deviation of the time of a task, as a share of its mean."""
    fixed_s: float = 0.0
    """The part of the time of a task that does not grow with its size; 0 if it was not measured separately."""
    error: float = 0.0
    """Standard error of the time per task, as a share of it."""
    setup_s: float = 0.0
    overhead_s: float = 0.0
    """Time of a worker between two dispatches, per dispatch."""
    bytes_in: int = 0
    """Bytes of the input of all tasks: stored bytes for a step that reads files, else bytes in memory."""
    bytes_out: int = 0
    cpus: float = 1.0
    gpus: float = 0.0
    gpu_memory_gb: float = 0.0
    memory_gb: float = 0.0
    batch_size: int = 1
    workers: int | None = None
    chunk: int = 0
    """Outputs per delivery of a generator; 0 if it is none."""
    peak_worker_bytes: int = 0
    settings: Mapping[str, int] = field(default_factory=dict)

    @property
    def uses_gpu(self) -> bool:
        return self.gpus > 0 or self.gpu_memory_gb > 0

    @property
    def service_s(self) -> float:
        return self.busy_s / self.tasks


@dataclass(frozen=True, slots=True)
class PhaseMeasure:
    """Steps that ran at the same time. A pipeline without barriers has one phase."""

    steps: tuple[StepMeasure, ...]
    inputs: int = 0
    source_bytes: int = 0
    """Bytes of the input that was read: of files, if the pipeline begins with a reader."""
    run_s: float = 0.0
    """From the start of the first worker to the last output."""
    decided_s: float = 0.0
    """The decision after this phase."""
    decided_fixed_s: float = 0.0
    """The part of it that does not grow with the documents."""
    peak_queue_bytes: int = 0
    start_s: float = 0.0
    leave_s: float = 0.0
    tick_s: float = 5.0
    autoscale_interval_s: float = 30.0


@dataclass(frozen=True, slots=True)
class RunMeasure:
    """One run of a pipeline, or of a sample of its input."""

    name: str
    phases: tuple[PhaseMeasure, ...]
    machine: MachineKind
    key: str = ""
    """Hash of the code and configuration of all steps."""
    at: float = 0.0
    """When it ended, in seconds since 1970."""
    version: str = ""
    executor: str = ""
    documents: int = 0
    source_bytes: int = 0
    total_s: float = 0.0
    """From the call of ``run`` to its return."""
    cpu_s: float = 0.0
    """CPU time of the driver and of all processes that it started."""
    cpu_fixed_s: float = 0.0
    """The part of it that does not grow with the input; 0 if it was not measured separately."""
    cpus: float = 1.0
    """CPUs that the run could use."""
    peak_memory_bytes: int = 0
    driver_bytes: int = 0
    """Resident memory of the driver."""
    workers: int = 1
    """The most workers at one time."""
    block_memory: float = 0.0
    """Memory of a worker for each byte of a block that it reads; 0 if it was not measured."""
    output_bytes: int = -1
    """Size of the kept documents; -1: not known. So for the next two."""
    excluded_bytes: int = -1
    temporary_bytes: int = -1
    """Beyond the output, at one time while the run lasted."""
    sampled: bool = False
    """Whether it was a sample, run by the planner."""

    @property
    def outside_s(self) -> float:
        """Time in which neither tasks ran nor a decision was made: start-up, listing, checks of the output."""
        return max(0.0, self.total_s - sum(phase.run_s + phase.decided_s for phase in self.phases))

    def profile(self) -> Profile:
        """Return the measurements as `--profile` takes them."""
        return Profile(
            {
                step.name: StageProfile(step.service_s, step.setup_s, step.outputs / step.tasks, step.settings)
                for phase in self.phases
                for step in phase.steps
                if step.tasks
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without defaults."""
        plain = _without_defaults(self)
        plain["format"] = FORMAT
        plain["machine"] = asdict(self.machine)
        plain["phases"] = [
            {**_without_defaults(phase), "steps": [_without_defaults(step) for step in phase.steps]}
            for phase in self.phases
        ]
        return plain

    @classmethod
    def of(cls, content: Any, where: str) -> RunMeasure:
        """Read what `to_dict` wrote. Raise `MeasureError` for anything else."""
        if not isinstance(content, Mapping) or content.get("format") != FORMAT:
            raise MeasureError(f"{where} is not a measured run of format {FORMAT}")
        phases = []
        for phase in _list(content, "phases", where):
            steps = tuple(_read(StepMeasure, step, f"{where}: a step") for step in _list(phase, "steps", where))
            phases.append(_read(PhaseMeasure, phase, f"{where}: a phase", steps=steps))
        machine = _read(MachineKind, content.get("machine"), f"{where}: 'machine'")
        return _read(cls, content, where, phases=tuple(phases), machine=machine)


_T = TypeVar("_T", RunMeasure, PhaseMeasure, StepMeasure, MachineKind)


def _without_defaults(x: RunMeasure | PhaseMeasure | StepMeasure) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for f in fields(x):
        value = object.__getattribute__(x, f.name)
        if f.name == "settings":
            if value:
                found[f.name] = dict(value)
        elif f.name not in ("steps", "phases", "machine") and value != f.default:
            found[f.name] = round(value, 9) if isinstance(value, float) else value
    return found


def _list(entry: Any, key: str, where: str) -> Sequence[Any]:
    found = entry.get(key) if isinstance(entry, Mapping) else None
    if not isinstance(found, list) or not found:
        raise MeasureError(f"{where}: '{key}' must be a list that is not empty")
    return found


def _read(kind: type[_T], entry: Any, where: str, **known: Any) -> _T:
    if not isinstance(entry, Mapping):
        raise MeasureError(f"{where} must be an object")
    values = dict(known)
    for f in fields(kind):
        if f.name in known or f.name not in entry:
            continue
        value = entry[f.name]
        if not _fits(value, str(f.type)):
            raise MeasureError(f"{where}: '{f.name}' is {value!r}")
        values[f.name] = tuple(value) if isinstance(value, list) else value
    try:
        return kind(**values)
    except TypeError as error:
        raise MeasureError(f"{where}: {error}") from None


def _fits(value: Any, wanted: str) -> bool:
    """Return whether a value of JSON has the type of a field."""
    match wanted:
        case "str":
            return isinstance(value, str)
        case "bool":
            return isinstance(value, bool)
        case "int":
            return type(value) is int and -1 <= value < _MOST
        case "int | None":
            return value is None or (type(value) is int and 0 < value < _MOST)
        case "float":
            return type(value) in (int, float) and math.isfinite(value) and 0 <= value < _MOST
        case "tuple[str, ...]":
            return isinstance(value, list) and all(isinstance(one, str) for one in value)
        case _:
            return isinstance(value, Mapping) and all(type(one) is int for one in value.values())
