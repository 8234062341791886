"""The report of a run, seen from its pipeline: what is known before the run, and how the run ended."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from gristmill import __version__
from gristmill.backends.base import Executor, RunRecord, StepStats
from gristmill.logs import logger
from gristmill.pipeline.code import version_of
from gristmill.pipeline.monitoring import Outcome, WatchedRun
from gristmill.pipeline.planner import flatten
from gristmill.report.place import FAILED, FINISHED, FORMAT, INTERRUPTED, Data
from gristmill.report.record import LONGEST_DETAIL, MOST_FAILURES, cut, most_common
from gristmill.report.recorder import Recorder
from gristmill.secrets import without_secrets
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import Scoring, Sink

if TYPE_CHECKING:
    from gristmill.ledger.run import RunLedger
    from gristmill.metrics.observer import Moment, PlanInfo
    from gristmill.pipeline.pipeline import Pipeline
    from gristmill.stages.text.filters.document_filter import DocumentFilter

Stage = ProcessingStage[Any, Any]
PACKAGES = ("pyarrow", "numpy", "numba", "orjson", "fsspec", "ray", "torch", "transformers", "tokenizers")
"""The packages whose versions are in a report, if the run has imported them."""
MOST_NOTES = 200


class RunReport:
    """Writes the report beside the output of a run."""

    def __init__(self, run: WatchedRun, writer: Sink[Any, Any]) -> None:
        self._used = _cpu_s()
        self._is_on_cluster = run.executor.on_cluster
        facts = facts_of(run.pipeline, run.executor) | {"output": writer.folder.name}
        self._recorder = Recorder(facts, run.history, writer.folder, logger.warning)

    def begin(self, plan: PlanInfo) -> None:
        self._recorder.begin(plan)

    def update(self, moment: Moment) -> None:
        self._recorder.update(moment)

    def message(self, text: str) -> None:
        """The history remembers it."""

    def end(self, outcome: Outcome) -> None:
        facts: Data = {"ended": time.time(), "load": os.getloadavg()[0]}
        if not self._is_on_cluster:
            facts["cpu_s"] = round(_cpu_s() - self._used, 3)
        place = self._recorder.end(ended(outcome) | facts)
        if place is None:
            return
        if outcome.result is not None:
            outcome.result.report = place
        elif outcome.error is not None:
            outcome.error.add_note(f"report: {place}")


def report_of(run: WatchedRun) -> RunReport | None:
    """Return the report of a run; None, with a warning, for a pipeline that writes nothing."""
    writer = writer_of(run.pipeline)
    if writer is None:
        logger.warning("no report of this run: no stage writes, so there is no folder for it. Add a writer.")
        return None
    return RunReport(run, writer)


def writer_of(pipeline: Pipeline) -> Sink[Any, Any] | None:
    """Return the stage of a pipeline that writes documents, if there is one."""
    return next((stage for stage in flatten(pipeline.stages) if isinstance(stage, Sink)), None)


def facts_of(pipeline: Pipeline, executor: Executor) -> Data:
    """Return what is known of a run before it starts."""
    return {
        "format": FORMAT,
        "gristmill": __version__,
        "name": pipeline.name,
        "description": cut(without_secrets(pipeline.description or "")),
        "started": time.time(),
        "command": [cut(without_secrets(part), 500) for part in sys.argv[:100]],
        "executor": {"name": type(executor).__name__, "options": dict(_options(executor))},
        "machine": _machine(),
        "versions": dict(_versions()),
        "rules": list(_rules(flatten(pipeline.stages))),
    }


def _options(executor: Executor) -> Iterator[tuple[str, Any]]:
    """Yield the options of an executor that are not the defaults."""
    for one in fields(executor.config):
        value = getattr(executor.config, one.name)
        if value == one.default or not isinstance(value, bool | int | float | str):
            continue
        yield one.name, without_secrets(value) if isinstance(value, str) else value


def _machine() -> Data:
    from gristmill.backends.engine.machine import cpu_count, memory_bytes

    system = os.uname()
    return {
        "system": f"{system.sysname} {system.release} {system.machine}",
        "cpus": cpu_count(),
        "memory_bytes": memory_bytes(),
    }


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", sys.version.split()[0]
    for name in PACKAGES:
        if version := version_of(name):
            yield name, version


def _rules(stages: Sequence[Stage]) -> Iterator[Data]:
    """Yield the rules of filters: names, words, and thresholds where they are known. Filters of users have a name only.

    Pipelines without filters have not imported their modules, which takes longer than the rest of the report.
    """
    filters = sys.modules.get("gristmill.stages.text.filters.score_filter")
    recipes = sys.modules.get("gristmill.stages.text.recipes.stage")
    for stage in stages:
        if filters is not None and isinstance(stage, filters.ScoreFilter | filters.Filter):
            inverts = stage.invert
            yield from (_rule(stage.name, one, bool(no)) for one, no in zip(stage.filters, inverts, strict=True))
        elif recipes is not None and isinstance(stage, recipes.RecipeStage):
            yield from (_rule(stage.name, one, False) for one in stage.rules if _is_filter(one))
        elif isinstance(stage, Scoring):
            yield from (_rule(stage.name, one, inverted) for one, inverted in stage.scored_rules())


def _is_filter(rule: object) -> bool:
    from gristmill.stages.text.filters.document_filter import DocumentFilter

    return isinstance(rule, DocumentFilter)


def _rule(stage: str, one: DocumentFilter, inverted: bool) -> Data:
    from gristmill.stages.text.filters.document_filter import AtLeast, AtMost, InRange

    made: Data = {"stage": stage, "rule": one.name, "inverted": inverted}
    if not type(one).__module__.startswith("gristmill."):
        return made  # what a filter of a user says of itself would be code of the pipeline
    made["text"] = cut(one.rule(), 300)
    if isinstance(one, InRange):
        made |= {"below": one.below, "above": one.above}
    if isinstance(one, InRange | AtLeast) and math.isfinite(one.least):
        made["least"] = float(one.least)
    if isinstance(one, InRange | AtMost) and math.isfinite(one.most):
        made["most"] = float(one.most)
    return made


def ended(outcome: Outcome) -> Data:
    """Return how a run ended."""
    error, result = outcome.error, outcome.result
    if error is None:
        state = INTERRUPTED if result is not None and result.record.interrupted else FINISHED
    else:
        state = INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
    made: Data = {"state": state}
    if error is not None:
        made["error"] = cut(without_secrets(str(error) or type(error).__name__), LONGEST_DETAIL)
    if result is not None:
        made |= _of_record(result.record)
    return made


def _of_record(record: RunRecord) -> Data:
    return {
        "wall_s": record.wall_s,
        "loaded_s": record.loaded_s,
        "first_output_s": record.first_output_s,
        "last_output_s": record.last_output_s,
        "peak_memory_bytes": record.peak_memory_bytes,
        "peak_bytes_in_flight": record.peak_bytes_in_flight,
        "budget_bytes": record.budget_bytes,
        "worker_deaths": record.worker_deaths,
        "notes": [cut(note) for note in record.notes[:MOST_NOTES]],
        "steps": [_of_step(step) for step in record.steps],
        "failures": [
            {
                "stage": x.stage,
                "task": x.task_id,
                "error": cut(x.error),
                "items": x.items,
                "detail": cut(x.detail, LONGEST_DETAIL),
                "story": [cut(line, 500) for line in x.story[:20]],
            }
            for x in record.failures[:MOST_FAILURES]
        ],
        "failures_total": record.failures_total,
    } | ({} if record.ledger is None else _of_ledger(record.ledger))


_OF_STEP = (
    *("units", "busy_share", "service_s_mean", "service_s_max", "queue_s_mean", "queue_s_max"),
    *("workers_started", "peak_worker_bytes"),
)


def _of_step(step: StepStats) -> Data:
    values: Mapping[str, Any] = vars(step)
    return {
        "name": step.name,
        "most_workers": max((n for _, n in step.workers), default=0),
        **{name: values[name] for name in _OF_STEP},
        "stages": [dict(vars(stage)) for stage in step.stages],
    }


def _of_ledger(ledger: RunLedger) -> Data:
    whole = ledger.total()
    return {
        "documents": {
            "read": whole.documents,
            "resumed": ledger.documents_resumed,
            "made": whole.made,
            "kept": whole.kept,
            "merged": whole.merged,
            "failed": whole.failed,
            "dropped": [[*key, n] for key, n in most_common(whole.dropped, ("", "other reasons"))],
            "errored": [[cut(key), n] for key, n in most_common(whole.errored, "other reasons")],
            "counters": [[*key, n] for key, n in most_common(whole.counters, ("", "other counters"))],
            "notes": [[*key, values] for key, values in sorted(whole.notes.items())],
            "problems": len(ledger.problems),
            "files": len(ledger.files),
        },
        "blocks": {
            "done": len(ledger.blocks),
            "total": max(ledger.blocks_total, len(ledger.blocks)),
            "resumed": ledger.resumed,
            "undone": ledger.undone,
            "bytes": ledger.bytes_total,
            "bytes_resumed": ledger.bytes_resumed,
        },
        "did_nothing": bool(ledger.resumed) and ledger.resumed == len(ledger.blocks) and not ledger.undone,
    }


def _cpu_s() -> float:
    """Return the CPU time of this process and its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
