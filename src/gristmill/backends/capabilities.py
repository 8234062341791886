"""The features that each executor supports. Planning checks them, and the documentation shows them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gristmill.backends.base import Plan
from gristmill.backends.step_runner import overrides
from gristmill.errors import PlanError
from gristmill.stages.core import ProcessingStage

Stage = ProcessingStage[Any, Any]


class LimitedExecutor(UserWarning):
    """An executor does not support something that a pipeline asks for. The run continues without it."""


@dataclass(frozen=True)
class Yes:
    """It is supported; ``note`` names what is special about it."""

    note: str = ""


@dataclass(frozen=True)
class No:
    """It is not supported."""

    words: str
    """The message for users: the reason, or the behaviour instead."""
    is_error: bool = False
    """A pipeline that asks for it is refused; otherwise the user is warned."""


YES = Yes()


@dataclass(frozen=True)
class Feature:
    """Something that a pipeline may need from an executor."""

    title: str
    asked: Callable[[Stage], bool] | None = None
    """Whether a stage asks for it; None if a stage does not show that."""
    ray_data: Yes | No = YES
    xenna: Yes | No = YES
    local: Yes | No = YES
    ray: Yes | No = YES

    def on(self, executor: str) -> Yes | No:
        """Return whether an executor, one of `EXECUTORS`, supports it."""
        return {"local": self.local, "ray": self.ray, "ray_data": self.ray_data, "xenna": self.xenna}[executor]


_NO_TIMEOUT = No("a task that hangs is not ended, timeout_s has no effect")
_ONE_AT_A_TIME = No("an asynchronous stage gets its tasks one at a time, max_in_flight has no effect")
_TAKEN_FIRST = No("all initial tasks are taken before the run begins")
_SHARE_OF_GPU = Yes("as a share of the smallest GPU")
FEATURES: dict[str, Feature] = {
    "results": Feature("one to one, one to many, drop, ids of tasks and documents"),
    "batches": Feature("`batch_size`, `process_batch`"),
    "setup": Feature("`setup`", lambda s: overrides(s, "setup"), ray_data=Yes("such steps are actor pools")),
    "teardown": Feature(
        "`teardown`",
        lambda s: overrides(s, "teardown"),
        ray_data=Yes("not on Ctrl-C, nor when Ray Data itself fails"),
        xenna=No("Xenna kills its workers, teardown() is never called"),
    ),
    "setup_on_node": Feature("`setup_on_node`"),
    "generators": Feature(
        "generators stream",
        lambda s: inspect.isgeneratorfunction(type(s).process) or s.streams_async(),
        xenna=No("all that a generator makes of a task is held in memory before any of it is passed on"),
    ),
    "in_flight": Feature(
        "`max_in_flight`, for asynchronous stages",
        lambda s: s.runs_async() and s.max_in_flight > 1,
        _ONE_AT_A_TIME,
        _ONE_AT_A_TIME,
    ),
    "num_workers": Feature("`num_workers`"),
    "gpus": Feature("GPUs, whole and fractions"),
    "logical_gpus": Feature(
        "GPUs that are only declared",
        xenna=No("Xenna counts the GPUs that it finds with pynvml, whatever the options of Ray are"),
    ),
    "gpu_memory": Feature("`gpu_memory_gb`", ray_data=_SHARE_OF_GPU, xenna=_SHARE_OF_GPU),
    "memory": Feature(
        "`memory_gb`",
        lambda s: s.resources.memory_gb > 0,
        xenna=No("Xenna does not look at memory, memory_gb is not reserved"),
    ),
    "waits_only": Feature(
        "`cpus=0`, for stages that only wait",
        lambda s: s.resources.cpus == 0 and not s.resources.requires_gpu,
        xenna=No("Xenna's workers need CPUs or GPUs: ask for a fraction of a CPU", is_error=True),
    ),
    "timeout": Feature("`timeout_s`", lambda s: s.timeout_s is not None, _NO_TIMEOUT, _NO_TIMEOUT),
    "recycling": Feature(
        "`worker_max_lifetime_m`",
        lambda s: s.worker_max_lifetime_m is not None,
        ray_data=No("workers are not replaced while they work, worker_max_lifetime_m has no effect"),
        xenna=Yes("whole minutes"),
    ),
    "attempts": Feature("`max_attempts`; a task that raises is given up alone, down to the item"),
    "crashes": Feature(
        "a task that ends its process is given up alone",
        xenna=No("a worker's death ends the run; where it writes, the next run resumes"),
    ),
    "ledger": Feature("every document accounted for, runs resume"),
    "endless": Feature("initial tasks are taken as memory allows", ray_data=_TAKEN_FIRST, xenna=_TAKEN_FIRST),
    "turns": Feature(
        "steps whose workers do not fit at the same time share slots in time",
        ray_data=No("a pipeline whose actors do not fit together is refused", is_error=True),
        xenna=No("a pipeline whose workers do not fit together is refused, but in batch mode", is_error=True),
    ),
    "balance": Feature("who balances", None, Yes("Ray Data"), Yes("Xenna"), Yes("gristmill"), Yes("gristmill")),
}
"""Everything worth a row in the table of executors."""

EXECUTORS = {"local": "LocalExecutor", "ray": "RayExecutor", "ray_data": "RayDataExecutor", "xenna": "XennaExecutor"}


def can(executor: str, feature: str) -> bool:
    """Whether an executor has a feature."""
    return isinstance(FEATURES[feature].on(executor), Yes)


def check(plan: Plan, executor: str) -> None:
    """Raise `PlanError` if an executor cannot run a plan. Warn (`LimitedExecutor`) of each thing that it ignores."""
    errors = []
    for stage in (stage for step in plan.steps for stage in step.stages):
        for lack in _lacks(stage, executor):
            words = f"stage {stage.name!r} on {EXECUTORS[executor]}: {lack.words}."
            if lack.is_error:
                errors.append(words)
            else:
                warnings.warn(words, LimitedExecutor, stacklevel=4)
    if errors:
        raise PlanError("\n".join(errors))


def _lacks(stage: Stage, executor: str) -> Iterator[No]:
    for feature in FEATURES.values():
        support = feature.on(executor)
        if isinstance(support, No) and feature.asked is not None and feature.asked(stage):
            yield support


def table() -> str:
    """All of it as a Markdown table."""
    rows = [f"| | {' | '.join(f'`{name}`' for name in EXECUTORS.values())} |", "|---|---|---|---|---|"]
    for feature in FEATURES.values():
        cells = [_cell(feature.on(executor)) for executor in EXECUTORS]
        rows.append(f"| {feature.title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(support: Yes | No) -> str:
    if isinstance(support, Yes):
        return support.note or "yes"
    return f"no: {support.words}" + (" (an error)" if support.is_error else "")
