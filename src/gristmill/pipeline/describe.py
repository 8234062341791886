"""Descriptions of pipelines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gristmill.backends.base import Plan
from gristmill.errors import PlanError
from gristmill.pipeline.planner import column_names, flatten, type_name
from gristmill.stages.core import ProcessingStage, worker_count


def describe_plan(plan: Plan) -> Iterator[str]:
    """Yield the steps with their stages, numbered as in error messages."""
    number = 0
    for position, step in enumerate(plan.steps, 1):
        fused = f": {len(step.stages)} stages fused" if len(step.stages) > 1 else ""
        yield f"  step {position}{fused}"
        for stage in step.stages:
            number += 1
            yield from _stage(number, stage)


def describe_stages(stages: Sequence[ProcessingStage[Any, Any]]) -> Iterator[str]:
    """Yield the stages of a pipeline that cannot be planned, with composites decomposed if possible."""
    try:
        stages = flatten(stages)
    except PlanError:
        pass
    for number, stage in enumerate(stages, 1):
        yield from _stage(number, stage)


def _stage(number: int, stage: ProcessingStage[Any, Any]) -> Iterator[str]:
    """Yield the types, the settings and the columns of a stage."""
    fans = ", may give several" if stage.fans_out() else ""
    yield f"    {number}. {stage.name}: {type_name(stage.input_type())} -> {type_name(stage.output_type())}{fans}"
    yield f"         {', '.join(_settings(stage))}"
    needs, makes = _columns(number, stage, "inputs"), _columns(number, stage, "outputs")
    if needs:
        yield f"         needs: {', '.join(needs)}"
    if makes:
        yield f"         makes{' only' if stage.only_outputs else ''}: {', '.join(makes)}"


def _columns(number: int, stage: ProcessingStage[Any, Any], side: str) -> list[str]:
    try:
        return column_names(number, stage, side)
    except PlanError:
        return []  # planning reports the error


def _settings(stage: ProcessingStage[Any, Any]) -> Iterator[str]:
    yield str(stage.resources)
    if stage.resources.requires_gpu and stage.resources_without_gpu is not None:
        yield f"without a GPU {stage.resources_without_gpu}"
    yield f"batch_size={stage.batch_size}"
    if stage.runs_async():
        yield f"max_in_flight={stage.max_in_flight}"
    workers = worker_count(stage)
    if workers is not None:
        yield f"num_workers={workers}"
    for field in ("timeout_s", "max_attempts", "worker_max_lifetime_m", "worker_restart_interval_m"):
        value = getattr(stage, field)
        if value is not None:
            yield f"{field}={value:g}"
