"""One record of a run in several phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gristmill.backends.base import Plan, RunRecord, StageStats, StepStats
from gristmill.ledger.run import RunLedger
from gristmill.scheduling.profile import Profile, StageProfile


def merged_record(
    records: Sequence[RunRecord], done_before: Sequence[StepStats], ledger: RunLedger | None, notes: list[str]
) -> RunRecord:
    """Return one record of all phases.

    ``done_before`` are the steps of phases that an earlier run has done. ``ledger`` is the account of the phases before
    the last one, unless that reads the source again.
    """
    last = records[-1]
    whole = last.ledger
    if ledger is not None and whole is not None:
        whole = whole.after(ledger)
    before = sum(record.wall_s for record in records[:-1])
    return replace(
        last,
        steps=[*done_before, *(step for record in records for step in record.steps)],
        wall_s=before + last.wall_s,
        first_output_s=None if last.first_output_s is None else before + last.first_output_s,
        failures=[failure for record in records for failure in record.failures],
        failures_total=sum(record.failures_total for record in records),
        decisions=[decision for record in records for decision in record.decisions],
        peak_bytes_in_flight=max(record.peak_bytes_in_flight for record in records),
        peak_memory_bytes=max(record.peak_memory_bytes for record in records),
        worker_deaths=sum(record.worker_deaths for record in records),
        profile=_profile(records),
        measured_load=None,  # a load is one pipeline whose steps all run at the same time
        ledger=whole,
        notes=notes,
    )


def steps_of(plan: Plan) -> list[StepStats]:
    """Return the steps of a phase that did not run."""
    return [StepStats(step.name, [StageStats(stage.name) for stage in step.stages]) for step in plan.steps]


def _profile(records: Sequence[RunRecord]) -> Profile | None:
    """Merge the profiles of all phases; None if the executor measures nothing."""
    measured = [record.profile for record in records if record.profile is not None]
    stages: dict[str, StageProfile] = {}
    for profile in measured:
        stages.update(profile.stages)
    return Profile(stages) if measured else None
