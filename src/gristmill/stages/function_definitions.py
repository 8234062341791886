"""Stages from plain functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, overload

from gristmill.stages import hints
from gristmill.stages.core import AsyncResult, ProcessingStage, Result
from gristmill.stages.hints import TaskType
from gristmill.stages.resources import Resources
from gristmill.tasks import Task

StageFunction = Callable[[Any], Result | AsyncResult]


class FunctionStage(ProcessingStage[Task[Any], Task[Any]]):
    """A stage whose `process` is a function. Calling it calls the function."""

    def __init__(
        self, function: StageFunction, inputs: Sequence[str] = (), outputs: Sequence[str] | None = None
    ) -> None:
        _check_function(function)
        functools.update_wrapper(self, function)
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._inputs = list(inputs)
        self._outputs = None if outputs is None else list(outputs)

    def __call__(self, task: Any) -> Result | AsyncResult:
        return self._function(task)

    def process(self, task: Task[Any]) -> Result | AsyncResult:
        return self._function(task)

    def inputs(self) -> tuple[list[str], list[str]]:
        return [], self._inputs

    def outputs(self) -> tuple[list[str], list[str]]:
        return [], self._outputs or []

    def declares_inputs(self) -> bool:
        return bool(self._inputs)

    def declares_outputs(self) -> bool:
        return self._outputs is not None

    def input_type(self) -> TaskType | None:
        return hints.task_type(hints.parameter_annotation(self._function))

    def output_type(self) -> TaskType | None:
        return hints.task_type(hints.return_annotation(self._function))

    def fans_out(self) -> bool:
        return hints.may_give_several(self._function) if self.fan_out is None else self.fan_out

    def runs_async(self) -> bool:
        return hints.is_async(self._function)

    def streams_async(self) -> bool:
        return inspect.isasyncgenfunction(self._function)


@overload
def processing_stage(function: StageFunction, /) -> FunctionStage: ...


# Thirteen parameters: the decorator takes all settings of a stage as keywords, as a class takes them as attributes.
@overload
def processing_stage(
    *,
    name: str | None = None,
    resources: Resources | None = None,
    batch_size: int | None = None,
    num_workers: int | None = None,
    worker_max_lifetime_m: float | None = None,
    worker_restart_interval_m: float | None = None,
    timeout_s: float | None = None,
    max_attempts: int | None = None,
    max_in_flight: int | None = None,
    fan_out: bool | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
    only_inputs: bool = False,
) -> Callable[[StageFunction], FunctionStage]: ...


def processing_stage(
    function: StageFunction | None = None,
    /,
    *,
    fan_out: bool | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
    only_inputs: bool = False,
    **settings: Any,
) -> FunctionStage | Callable[[StageFunction], FunctionStage]:
    """Make a stage of a function that takes a task and returns a task, several (a list or a generator), or None.

        @processing_stage(name="long_enough", resources=Resources(cpus=1))
        def long_enough(task: DocumentBatch) -> DocumentBatch | None:
            return task if task.num_items > 10 else None

        pipeline.add_stage(long_enough)

    The types of tasks come from the annotations. ``inputs`` and ``outputs`` name the columns that it needs and makes.
    It sees all columns, unless ``only_inputs`` is set. The other settings are those of `ProcessingStage.with_`.
    An ``async def`` is called for up to ``max_in_flight`` tasks at the same time.
    """

    def make(function: StageFunction) -> FunctionStage:
        stage = FunctionStage(function, inputs, outputs).with_(**settings)
        stage.fan_out = fan_out
        stage.only_inputs = only_inputs
        return stage

    return make if function is None else make(function)


def _check_function(function: object) -> None:
    if not callable(function) or isinstance(function, type | ProcessingStage):
        raise TypeError(f"@processing_stage is for functions, not for {function!r}.")
    try:
        hints.signature(function).bind(object())
    except TypeError:
        raise TypeError(f"@processing_stage: {function!r} must take one argument, the task.") from None
    except ValueError:
        return  # builtins without a signature
