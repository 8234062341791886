"""The whole job on some nodes: loads for the simulator, made of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gristmill.backends.base import Plan
from gristmill.capacity.errors import CapacityError
from gristmill.capacity.gpus import SAME, GpuKind, RelativeSpeed, kind_of_model, relative_speed
from gristmill.pipeline.profiles.measured import PhaseMeasure, RunMeasure, StepMeasure
from gristmill.scheduling.simulator.loads import Load, NodeModel, StageModel

_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """What is to be processed, and where."""

    run: RunMeasure
    inputs: int
    """Blocks, or tasks."""
    source_bytes: int
    """0 for tasks."""
    nodes: tuple[NodeModel, ...]
    gpu: RelativeSpeed = SAME
    """Of the GPUs of the nodes, relative to the measured ones."""
    cpu_speed: float = 1.0
    """Of the CPUs of the nodes, relative to the measured ones."""

    @property
    def documents(self) -> int:
        run = self.run
        if not self.source_bytes or not run.source_bytes:
            return 0
        return round(run.documents * self.source_bytes / run.source_bytes)

    @property
    def bytes_per_input(self) -> float:
        return self.source_bytes / self.inputs if self.inputs else 0.0

    def with_blocks(self, size: int) -> PlannedJob:
        """Return the job with blocks of another size."""
        return replace(self, inputs=max(1, -(-self.source_bytes // size)))


def loads(job: PlannedJob, slower: float = 1.0, gpu_speed: float | None = None) -> list[Load]:
    """Return a load for each phase. All times per task are multiplied by ``slower``."""
    speed = job.gpu.usual if gpu_speed is None else gpu_speed
    nodes = tuple(replace(node, cpu_speed=job.cpu_speed, gpu_speed=speed) for node in job.nodes)
    return [_load(job, phase, nodes, slower) for phase in job.run.phases]


def _load(job: PlannedJob, phase: PhaseMeasure, nodes: tuple[NodeModel, ...], slower: float) -> Load:
    first = phase.steps[0]
    inputs, scale = job.inputs, 1.0
    if phase.source_bytes and job.source_bytes:
        scale = job.bytes_per_input / (phase.source_bytes / phase.inputs)
    elif job.source_bytes:  # a phase that reads what an earlier one has stored
        before = job.run.phases[0]
        inputs = max(1, round(job.inputs * phase.inputs / before.inputs))
        scale = job.bytes_per_input / (before.source_bytes / before.inputs) if before.source_bytes else 1.0
    stages = []
    for i, step in enumerate(phase.steps):
        outputs = step.outputs / step.tasks
        size_out = scale
        if i == 0 and outputs > 1.01:
            outputs, size_out = max(1.0, outputs * scale), 1.0
        service = step.fixed_s + (step.service_s - step.fixed_s) * (scale if step.bytes_in else 1.0)
        stages.append(_stage(step, max(1e-6, service * slower), outputs, size_out))
        scale = size_out
    return Load(
        nodes,
        tuple(stages),
        inputs,
        job.run.name,
        input_mb=first.bytes_in / first.tasks / _MB if not phase.source_bytes else 0.001,
        shared_cpu=True,
        start_s=phase.start_s,
        leave_s=phase.leave_s,
        tick_s=phase.tick_s,
        autoscale_interval_s=phase.autoscale_interval_s,
    )


def _stage(step: StepMeasure, service: float, outputs: float, scale: float) -> StageModel:
    return StageModel(
        step.name,
        step.cpus,
        step.gpus,
        service,
        step.cv,
        step.setup_s,
        outputs,
        step.memory_gb,
        step.gpu_memory_gb,
        step.bytes_out / step.outputs * scale / _MB if step.outputs else 0.0,
        step.batch_size,
        step.workers,
        step.chunk,
        step.overhead_s,
    )


def check_gpus(plan: Plan, run: RunMeasure, nodes: Sequence[NodeModel]) -> None:
    """Raise `CapacityError` if a stage would run on GPUs, but was measured without, or the other way round."""
    has_gpus = any(node.gpus for node in nodes)
    asking = [step for step in plan.steps if step.resources.requires_gpu]
    measured = {step.name: step for phase in run.phases for step in phase.steps}
    for step in asking:
        found = measured.get(step.name)
        if found is None:
            continue
        if has_gpus and not found.uses_gpu:
            raise CapacityError(
                f"{step.name!r} was measured without a GPU, and on these nodes it runs on GPUs: its speed there is "
                "unknown. Plan for nodes without GPUs, or with a profile from a machine that has a GPU (--profile)"
            )
        if not has_gpus and found.uses_gpu:
            raise CapacityError(
                f"{step.name!r} needs a GPU, and the nodes have none: write 8x48c8g for 8 nodes of 48 CPUs and 8 GPUs"
            )


def gpu_speed(run: RunMeasure, wanted: GpuKind | None) -> tuple[RelativeSpeed, str]:
    """Return how fast the GPUs of the nodes are relative to the measured ones, and a line for the user."""
    if wanted is None or not any(step.uses_gpu for phase in run.phases for step in phase.steps):
        return SAME, ""
    models = run.machine.gpus
    measured = kind_of_model(models[0]) if models else None
    if measured is None:
        what = f"on {models[0]!r}, which --gpu does not know" if models else "on logical GPUs, which only count workers"
        raise CapacityError(
            f"the GPU stages of {run.name!r} were measured {what}: how fast they are on {wanted.name} is unknown. "
            "Leave out --gpu to plan for the same GPUs, or give a profile from a machine with a known GPU (--profile)"
        )
    speed = relative_speed(measured, wanted)
    if speed == SAME:
        return SAME, f"GPU stages were measured on {measured.name}, the kind that is planned for"
    return speed, (
        f"GPU stages were measured on {measured.name}; that {wanted.name} is {speed.usual:.2g} times as fast is an "
        f"estimate by data sheets ({speed.low:.2g} to {speed.high:.2g} times)"
    )
