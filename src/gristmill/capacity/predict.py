"""Simulate the whole job with the real scheduler, and add what is outside of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, hypot

from gristmill.capacity.errors import CapacityError
from gristmill.capacity.jobs import PlannedJob, loads
from gristmill.scheduling.simulator import LoadError, SimulationResult, check, simulate
from gristmill.scheduling.simulator.loads import Load

MOST_TASKS = 4_000
"""Tasks of all steps that are simulated, at most: longer jobs are continued at the rate of the last half."""
SEEDS = (1, 2, 3)
_QUANTILE = 2.0
_SUPERVISOR_BYTES = 20 << 20


@dataclass(frozen=True)
class PhasePrediction:
    """One phase, simulated with one seed."""

    seconds: float
    load: Load
    result: SimulationResult
    share: float
    """Of the inputs that were simulated."""
    optimum_s: float


@dataclass(frozen=True)
class StepUse:
    """The workers of a step, and the share of a resource of the cluster that they occupy with work."""

    name: str
    workers: int
    busy_share: float
    resource: str
    """CPU or GPU."""
    resource_share: float
    """The time in which its tasks run, as a share of the time that the cluster has of this resource."""


@dataclass(frozen=True)
class Prediction:
    """The whole job."""

    seconds: float
    low_s: float
    high_s: float
    fixed_s: float
    """Start-up, listing and checks: measured in the sample, and taken to be the same for the whole job."""
    phases_s: tuple[float, ...]
    decided_s: tuple[float, ...]
    share_of_optimum: float
    busy: dict[str, float]
    """By resource, the share of the time in which it works, while the phases run."""
    steps: tuple[StepUse, ...]
    workers_per_node: int
    cpu_s: float

    @property
    def bottleneck(self) -> StepUse:
        return max(self.steps, key=lambda step: step.resource_share)


def fits(job: PlannedJob) -> None:
    """Raise `CapacityError` if a step fits on no node."""
    for load in loads(job):
        try:
            check(load)
        except LoadError as error:
            words = str(error).partition(": ")[2]
            raise CapacityError(f"the nodes are too small: {words}. Give larger nodes with --nodes") from None


def makespan_s(job: PlannedJob, seed: int = SEEDS[0]) -> float:
    """Return the time of the whole job by one simulation."""
    phases = [_simulated(load, seed).seconds for load in loads(job)]
    return job.run.outside_s + sum(phases) + sum(_decisions(job))


def least_s(job: PlannedJob) -> float:
    """Return the time of the whole job if its nodes never waited. Simulations take longer, but for random times."""
    phases = [max(_work(load, True), _work(load, False)) for load in loads(job)]
    return job.run.outside_s + sum(phases) + sum(_decisions(job))


def _work(load: Load, on_gpus: bool) -> float:
    """Return the seconds for which a phase occupies all GPUs, or all CPUs, of its nodes."""
    node = load.nodes[0]
    total = sum(one.gpus * one.gpu_speed if on_gpus else one.cpus * one.cpu_speed for one in load.nodes)
    work = 0.0
    for stage, tasks in zip(load.stages, _tasks(load), strict=True):
        if (stage.gpus > 0 or stage.gpu_memory_gb > 0) == on_gpus:
            each = (stage.gpus or stage.gpu_memory_gb / node.gpu_memory_gb) if on_gpus else stage.cpus
            work += stage.mean_s * tasks * each
    return work / total if work else 0.0


def predict(job: PlannedJob, gpu_bounds: bool = True) -> Prediction:
    """Simulate a job with several seeds, and with times at both ends of what the sample leaves open."""
    fits(job)
    usual = [[_simulated(load, seed) for load in loads(job)] for seed in SEEDS]
    decided = _decisions(job)
    fixed = job.run.outside_s
    rest = fixed + sum(decided)
    times = [sum(phase.seconds for phase in phases) for phases in usual]
    error = _error(job)
    speeds = (job.gpu.high, job.gpu.low) if gpu_bounds else (job.gpu.usual, job.gpu.usual)
    fast = sum(_simulated(load, SEEDS[0]).seconds for load in loads(job, 1 / (1 + error), speeds[0]))
    slow = sum(_simulated(load, SEEDS[0]).seconds for load in loads(job, 1 + error, speeds[1]))
    middle = sorted(times)[len(times) // 2]
    low = min(fast * (1 - _spread(times)), *times) + rest * (1 - _OUTSIDE_ERROR)
    high = max(slow * (1 + _spread(times)), *times) + rest * (1 + _OUTSIDE_ERROR)
    phases = usual[times.index(middle)]
    uses = tuple(_uses(phases, middle, job))
    return Prediction(
        seconds=middle + rest,
        low_s=low,
        high_s=high,
        fixed_s=fixed,
        phases_s=tuple(phase.seconds for phase in phases),
        decided_s=tuple(decided),
        share_of_optimum=sum(phase.optimum_s for phase in phases) / middle if middle else 0.0,
        busy=_busy(uses),
        steps=uses,
        workers_per_node=max(_workers(phase) for phase in phases),
        cpu_s=_cpu_s(job),
    )


_OUTSIDE_ERROR = 0.15
"""How far the time outside of tasks may be off: it was measured once."""


def _simulated(load: Load, seed: int) -> PhasePrediction:
    """Simulate a load. A long one is simulated in part, and continued at the rate of the last half of that."""
    tasks, each = 1.0, 0.0
    for stage in load.stages:
        each += tasks
        tasks *= stage.outputs_per_input
    slots = sum(int(node.cpus) + node.gpus for node in load.nodes)
    most = max(20, ceil(max(MOST_TASKS, 3 * slots) / each))
    if load.inputs <= 2 * most:
        result = _played(load, seed)
        return PhasePrediction(result.makespan_s, load, result, 1.0, _finite(result.ideal_s, result.makespan_s))
    whole = _played(replace(load, inputs=most), seed)
    half = _played(replace(load, inputs=most // 2), seed)
    per_input = (whole.makespan_s - half.makespan_s) / (most - most // 2)
    seconds = whole.makespan_s + per_input * (load.inputs - most)
    optimum = _finite(whole.ideal_s, whole.makespan_s) * load.inputs / most
    return PhasePrediction(seconds, load, whole, most / load.inputs, optimum)


def _played(load: Load, seed: int) -> SimulationResult:
    result = simulate(load, seed)
    if result.aborted:
        raise CapacityError(f"the job does not run to its end on these nodes: {result.aborted}")
    return result


def _finite(ideal: float, otherwise: float) -> float:
    return ideal if ideal < 1e12 else otherwise


def _decisions(job: PlannedJob) -> list[float]:
    """Return the times of the decisions of barriers: a fixed part, and one that grows with the documents."""
    run = job.run
    times = job.documents / run.documents if run.documents else 1.0
    return [
        phase.decided_fixed_s + (phase.decided_s - phase.decided_fixed_s) * times
        for phase in run.phases
        if phase.decided_s
    ]


def _cpu_s(job: PlannedJob) -> float:
    """Return the CPU time of the whole job."""
    run = job.run
    if job.source_bytes and run.source_bytes:
        times = job.source_bytes / run.source_bytes
    else:
        times = job.inputs / run.phases[0].inputs
    return run.cpu_fixed_s + (run.cpu_s - run.cpu_fixed_s) * times


def _tasks(load: Load) -> Iterator[float]:
    tasks = float(load.inputs)
    for stage in load.stages:
        yield tasks
        tasks *= stage.outputs_per_input


def _error(job: PlannedJob) -> float:
    """Return the error of the time per task of the steps that take most of the time."""
    steps = [step for phase in job.run.phases for step in phase.steps]
    total = sum(step.busy_s for step in steps)
    return _QUANTILE * hypot(*(step.error * step.busy_s / total for step in steps)) if total else 0.0


def _spread(times: Sequence[float]) -> float:
    middle = sorted(times)[len(times) // 2]
    return (max(times) - min(times)) / 2 / middle if middle else 0.0


def _uses(phases: Sequence[PhasePrediction], total: float, job: PlannedJob) -> Iterator[StepUse]:
    cpus, gpus = sum(node.cpus for node in job.nodes), sum(node.gpus for node in job.nodes)
    for phase in phases:
        for model, stage in zip(phase.load.stages, phase.result.stages, strict=True):
            on_gpu = model.gpus > 0 or model.gpu_memory_gb > 0
            gpu_each = model.gpus or min(1.0, model.gpu_memory_gb / phase.load.nodes[0].gpu_memory_gb)
            own, all_ = (gpu_each, gpus) if on_gpu else (model.cpus, cpus)
            busy = stage.busy_s / phase.share
            yield StepUse(
                stage.name,
                max((n for _, n in stage.timeline), default=0),
                stage.busy_share,
                "GPU" if on_gpu else "CPU",
                min(1.0, busy * own / (all_ * total)) if all_ and total else 0.0,
            )


def _busy(uses: Sequence[StepUse]) -> dict[str, float]:
    found: dict[str, float] = {}
    for use in uses:
        found[use.resource] = min(1.0, found.get(use.resource, 0.0) + use.resource_share)
    return found


def _workers(phase: PhasePrediction) -> int:
    """Return the most workers of a node at one time; those that steps share count once."""
    own = shared = 0
    for model, stage in zip(phase.load.stages, phase.result.stages, strict=True):
        most = max((n for _, n in stage.timeline), default=0)
        if model.gpus or model.gpu_memory_gb or model.workers is not None:
            own += most
        else:
            shared = max(shared, most)
    return max(1, ceil((own + shared) / len(phase.load.nodes)))
