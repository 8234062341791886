"""Turn a finished run into a load: the same job, to simulate on other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt

from gristmill.scheduling.events import NodeJoined
from gristmill.scheduling.load import GB, Load, NodeModel, StageModel
from gristmill.scheduling.records import StepRec
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.state import State

_MB = 1 << 20


def load_of(
    state: State,
    nodes: Sequence[NodeJoined],
    name: str,
    start_s: float = 0.0,
    leave_s: float = 0.0,
    tick_s: float = 5.0,
) -> Load | None:
    """Return what a scheduler has measured as a load; None if a step has finished no task.

    Times are means over the whole run. The backend knows what workers take to start and to leave.
    """
    if not state.source.taken or not all(step.counts.tasks_done and step.times.busy_us for step in state.steps):
        return None
    config = state.config
    usual = config.budget == sum(node.memory for node in nodes) // 4  # then it is so on other nodes too
    return Load(
        tuple(_node(node) for node in nodes),
        tuple(_stage(step) for step in state.steps),
        state.source.taken,
        name,
        input_mb=state.source.bytes / state.source.taken / _MB,
        budget_gb=0.0 if usual else config.budget / GB,
        shared_cpu=True,
        start_s=start_s,
        leave_s=leave_s,
        tick_s=tick_s,
        autoscale_interval_s=config.autoscale_interval_us / UNIT,
        batch_mode=config.batch_mode,
    )


def _node(node: NodeJoined) -> NodeModel:
    return NodeModel(node.cpu / UNIT, len(node.gpus), node.memory / GB, min(node.gpus, default=80 * GB) / GB)


def _stage(step: StepRec) -> StageModel:
    spec = step.spec
    outputs = step.counts.outputs / step.counts.tasks_done
    dispatches = step.counts.units_done + step.counts.chunks
    return StageModel(
        spec.name,
        spec.cpu / UNIT,
        spec.gpu / UNIT,
        step.times.busy_us / step.counts.tasks_done / UNIT,
        variation(step),
        max(1, step.setup.mean_us) / UNIT if spec.has_setup else 0.0,
        outputs,
        spec.memory / GB,
        spec.gpu_memory / GB,
        step.counts.output_bytes / step.counts.outputs / _MB if step.counts.outputs else 0.0,
        spec.batch_size,
        spec.workers,
        ceil(step.counts.outputs / dispatches) if step.counts.chunks else 0,
        max(0, step.times.head_us - step.times.busy_us) / dispatches / UNIT,
    )


def variation(step: StepRec) -> float:
    """Standard deviation of the time of a task, as a share of its mean.

    A unit of n tasks varies by n times the variance of one, so the sum of t^2 / n over the units is the sum of the
    squares of the means plus one variance for each unit.
    """
    mean = step.times.busy_us / step.counts.tasks_done
    variance = (step.times.busy_squares - step.times.busy_us * mean) / step.counts.units_done
    return sqrt(max(0.0, variance)) / mean
