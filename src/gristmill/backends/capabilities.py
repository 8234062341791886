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
from gristmill.stages.core import ProcessingStage, worker_count

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
    """What happens instead, for users."""
    is_error: bool = False
    """A pipeline that asks for it is refused; otherwise the user is warned."""


@dataclass(frozen=True)
class Feature:
    """Something that a pipeline may need from an executor."""

    title: str
    asked: Callable[[Stage], bool] | None
    """Whether a stage asks for it; None if a stage does not show that."""
    local: Yes | No
    ray: Yes | No
    ray_data: Yes | No
    xenna: Yes | No

    def on(self, executor: str) -> Yes | No:
        """Return whether an executor, one of `EXECUTORS`, supports it."""
        return {"local": self.local, "ray": self.ray, "ray_data": self.ray_data, "xenna": self.xenna}[executor]


def _makes_generators(stage: Stage) -> bool:
    return inspect.isgeneratorfunction(type(stage).process)


YES = Yes()

FEATURES: dict[str, Feature] = {
    "results": Feature("one to one, one to many, drop, ids of tasks and documents", None, YES, YES, YES, YES),
    "batches": Feature("`batch_size`, `process_batch`", None, YES, YES, YES, YES),
    "setup": Feature("`setup`", lambda s: overrides(s, "setup"), YES, YES, Yes("such steps are actor pools"), YES),
    "teardown": Feature(
        "`teardown`",
        lambda s: overrides(s, "teardown"),
        YES,
        YES,
        Yes("not on Ctrl-C, nor when Ray Data itself fails"),
        No("Xenna kills its workers, teardown() is never called"),
    ),
    "setup_on_node": Feature("`setup_on_node`", lambda s: overrides(s, "setup_on_node"), YES, YES, YES, YES),
    "generators": Feature(
        "generators stream",
        _makes_generators,
        YES,
        YES,
        YES,
        No("all that a generator makes of a task is held in memory before any of it is passed on"),
    ),
    "num_workers": Feature("`num_workers`", lambda s: worker_count(s) is not None, YES, YES, YES, YES),
    "gpus": Feature("GPUs, whole and fractions", lambda s: s.resources.gpus > 0, YES, YES, YES, YES),
    "logical_gpus": Feature(
        "GPUs that are only declared",
        None,
        YES,
        YES,
        YES,
        No("Xenna counts the GPUs that it finds with pynvml, whatever the options of Ray are"),
    ),
    "gpu_memory": Feature(
        "`gpu_memory_gb`",
        lambda s: s.resources.gpu_memory_gb > 0,
        YES,
        YES,
        Yes("as a share of the smallest GPU"),
        Yes("as a share of the smallest GPU"),
    ),
    "memory": Feature(
        "`memory_gb`",
        lambda s: s.resources.memory_gb > 0,
        YES,
        YES,
        YES,
        No("Xenna does not look at memory, memory_gb is not reserved"),
    ),
    "waits_only": Feature(
        "`cpus=0`, for stages that only wait",
        lambda s: s.resources.cpus == 0 and not s.resources.requires_gpu,
        YES,
        YES,
        YES,
        No("Xenna's workers need CPUs or GPUs: ask for a fraction of a CPU", is_error=True),
    ),
    "timeout": Feature(
        "`timeout_s`",
        lambda s: s.timeout_s is not None,
        YES,
        YES,
        No("a task that hangs is not ended, timeout_s has no effect"),
        No("a task that hangs is not ended, timeout_s has no effect"),
    ),
    "recycling": Feature(
        "`worker_max_lifetime_m`",
        lambda s: s.worker_max_lifetime_m is not None,
        YES,
        YES,
        No("workers are not replaced while they work, worker_max_lifetime_m has no effect"),
        Yes("whole minutes"),
    ),
    "attempts": Feature("`max_attempts`; a task that raises is given up alone, down to the item", None, *[YES] * 4),
    "crashes": Feature(
        "a task that ends its process is given up alone",
        None,
        YES,
        YES,
        YES,
        No("a worker's death ends the run; where it writes, the next run resumes"),
    ),
    "ledger": Feature("every document accounted for, runs resume", None, YES, YES, YES, YES),
    "endless": Feature(
        "initial tasks are taken as memory allows",
        None,
        YES,
        YES,
        No("all initial tasks are taken before the run begins"),
        No("all initial tasks are taken before the run begins"),
    ),
    "turns": Feature(
        "steps whose workers do not fit at the same time take turns",
        None,
        YES,
        YES,
        No("a pipeline whose actors do not fit together is refused", is_error=True),
        No("a pipeline whose workers do not fit together is refused, but in batch mode", is_error=True),
    ),
    "balance": Feature(
        "who balances",
        None,
        Yes("gristmill"),
        Yes("gristmill"),
        Yes("Ray Data"),
        Yes("Xenna"),
    ),
}
"""Everything worth a row in the table of executors."""

EXECUTORS = {"local": "LocalExecutor", "ray": "RayExecutor", "ray_data": "RayDataExecutor", "xenna": "XennaExecutor"}


def can(executor: str, feature: str) -> bool:
    """Whether an executor has a feature."""
    return isinstance(FEATURES[feature].on(executor), Yes)


def check(plan: Plan, executor: str) -> None:
    """Say what an executor cannot do for a plan: a `PlanError`, or a `LimitedExecutor` warning for each such thing."""
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
