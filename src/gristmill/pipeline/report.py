"""The record of a run as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gristmill.backends.base import Failure, RunRecord, StageStats, StepStats
from gristmill.ledger.excluded import EXCLUDED, QUARANTINE, records_name
from gristmill.ledger.run import RunLedger
from gristmill.metrics.format import escaped
from gristmill.pipeline.funnel import funnel
from gristmill.pipeline.text_layout import near_path, table, wrapped
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io.reader.base import FileReader

SHOWN_FAILURES = 3
RESUME = "Run the same command to resume."
HEAD = (
    *("stage", "tasks in", "out", "dropped", "failed", "items in", "out", "failed"),
    *("busy", "service", "(max)", "queue", "(max)", "workers", "memory"),
)
CHOICES = (
    tuple(range(len(HEAD))),
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14),
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14),
    (0, 1, 2, 4, 5, 6, 7, 8, 9, 13),
    (0, 5, 6, 7, 8, 9, 13, 14),
    (0, 5, 6, 7, 8, 9),
    (0, 5, 6, 7),
)
"""The columns of the table, from the widest choice to the narrowest."""


def summary(record: RunRecord, columns: int | None = None) -> str:
    """Return a table with a row per stage; values of a step are in the row of its first stage.

    A table for ``columns`` has only the most important values.
    """
    rows = [row for step in record.steps for row in _rows(step)]
    lines = [line for part in _overview(record) for line in wrapped(part, columns)]
    if record.ledger is not None:
        stages = [stage.name for step in record.steps for stage in step.stages]
        lines += ["", "documents", *documents(record.ledger, stages, columns)]
        lines += [line for note in record.notes for line in wrapped(note, columns, 2)]
    return "\n".join([*lines, "", *table([HEAD, *rows], CHOICES, columns)])


def documents(ledger: RunLedger, stages: Sequence[str], columns: int | None = None) -> Iterator[str]:
    """Yield the account of documents, and where they are."""
    yield from funnel(ledger, stages, columns)
    if ledger.resumed and ledger.resumed == len(ledger.blocks):
        yield from wrapped("nothing was left to do: earlier runs have done all blocks", columns, 2)
    if ledger.undone:
        blocks = "1 block is" if ledger.undone == 1 else f"{ledger.undone:,} blocks are"
        words = "not done and not counted above; the next run repeats that work and replaces the partial output"
        yield from wrapped(f"{blocks} {words}", columns, 2)
    if ledger.log is None:
        yield from wrapped("no stage writes: nothing was put anywhere", columns, 2)
    else:
        folder = ledger.log.folder
        place = escaped(near_path(folder.name))
        whole = ledger.total()
        if folder.names():
            yield f"  kept documents     {place}"
        for what, there, name in (
            ("dropped documents", whole.dropped, EXCLUDED),
            ("what they repeat", whole.dropped, records_name(1)),
            ("bad records", whole.errored, QUARANTINE),
        ):
            if there and folder.names(name):
                yield f"  {what:<17}  {place.rstrip('/')}/{name}"
        if whole.failed:
            documents = "1 document" if whole.failed == 1 else f"{whole.failed:,} documents"
            hint = "process them again with --retry-failed, or run(retry_failed=True)"
            yield from wrapped(f"{documents} in quarantine because a stage failed: {hint}", columns, 2)


def interrupted(ledger: RunLedger, where: str = "") -> str:
    """Describe how much an interrupted run has done, and how to resume; ``where`` is the phase."""
    if ledger.log is None:
        return "interrupted; the pipeline writes nothing, so the next run starts over"
    done, total = len(ledger.blocks), ledger.blocks_total
    are = "is" if done == 1 else "are"
    return f"interrupted{where}: {done:,} of {total:,} blocks {are} done. {RESUME}"


def kept_nothing(record: RunRecord) -> str:
    """Describe a run with a writer that read documents and kept none; empty for any other."""
    ledger = record.ledger
    if ledger is None or ledger.log is None or record.interrupted or ledger.undone:
        return ""
    whole = ledger.total()
    if whole.kept or not whole.documents:
        return ""
    gone = Counter({f"dropped by {stage!r}: {reason}": n for (stage, reason), n in whole.dropped.items()})
    gone.update({f"in quarantine: {reason}": n for reason, n in whole.errored.items()})
    lines = [f"    {n:,} {what}" for what, n in gone.most_common(SHOWN_FAILURES)]
    return "\n".join(
        [
            f"pipeline {record.name!r} read {whole.documents:,} documents and kept none:",
            *lines,
            "If that is what you want: --allow-empty, or run(allow_empty=True).",
        ]
    )


def read_nothing(record: RunRecord, reader: ProcessingStage[Any, Any] | None) -> str:
    """Describe a finished run that read no document; empty for any other."""
    ledger = record.ledger
    if ledger is None or record.interrupted or ledger.undone or ledger.total().documents:
        return ""
    sample = reader.sample if isinstance(reader, FileReader) else None
    if sample is None or sample == 1:
        return "nothing was read and nothing written: there is no document in the input"
    return (
        f"nothing was read and nothing written: the sample of {sample:.12g} takes none of the documents in the input. "
        "Take a larger sample: --sample, or sample= of the reader"
    )


def failures(record: RunRecord) -> str:
    """Describe what failed, and the first failures."""
    total, shown = record.failures_total, record.failures[:SHOWN_FAILURES]
    lines = [f"pipeline {record.name!r}: {_failed(record)}."]
    described: set[tuple[str, str]] = set()
    for failure in shown:
        lines += ["", *_failure(failure, (failure.stage, failure.error) in described)]
        described.add((failure.stage, failure.error))
    if total > len(shown):
        lines += ["", f"and {total - len(shown)} more: see .result.failures of this error."]
    from gristmill.scheduling.events import Death  # a successful run does not need it

    out_of_memory = [Death.OUT_OF_MEMORY.value in failure.error for failure in shown]
    if any(out_of_memory):
        more = "raise memory_limit (--memory-limit, or the executor's), or lower the blocksize of the reader"
        lines += ["", f"Where memory ran out: {more}."]
    if not all(out_of_memory):
        lines += ["", "To set such parts aside and go on: --ignore-failures, or the executor's ignore_failures=True."]
    return "\n".join(lines)


def _failed(record: RunRecord) -> str:
    """Describe what failed. If the bad parts of a task were found, only they failed."""
    total = record.failures_total
    stages = [stage for step in record.steps for stage in step.stages]
    whole, items = sum(stage.tasks_failed for stage in stages), sum(stage.items_failed for stage in stages)
    if not whole:
        what = "part of a task" if total == 1 else "parts of tasks"
    elif whole == total and not any(failure.task_id.endswith("]") for failure in record.failures):
        what = "task" if total == 1 else "tasks"
    else:
        what = "part of a task" if total == 1 else "tasks or parts of tasks"
    return f"{total:,} {what} failed ({items:,} item{'s' * (items != 1)})"


def _failure(failure: Failure, is_known: bool) -> Iterator[str]:
    """Describe a failure, in one line if the same error of the same stage came before."""
    items = f" ({failure.items} item{'s' * (failure.items != 1)})"
    yield f"stage {failure.stage!r}, task {failure.task_id}{items}: {'the same error' if is_known else failure.error}"
    if is_known:
        return
    if failure.story:
        yield "  what happened:"
        yield from (f"    {line}" for line in _without_repeats(failure.story))
    if failure.detail.strip():
        yield "  where:"
        yield from (f"    {line}" for line in failure.detail.strip("\n").splitlines())


def _without_repeats(story: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a story, with "the same error" for an error that the previous attempt raised as well."""
    last = ""
    for line in story:
        attempt, is_failure, error = line.partition(": attempt ")
        worker, _, error = error.partition(": ")
        if not is_failure or not error:
            yield line
        elif error == last:
            yield f"{attempt}{is_failure}{worker}: the same error"
        else:
            last = error
            yield line


def _overview(record: RunRecord) -> Iterator[str]:
    first = "" if record.first_output_s is None else f", first output after {_seconds(record.first_output_s)}"
    state = "interrupted after" if record.interrupted else "ran"
    yield f"{record.name}: {state} {_seconds(record.wall_s)}{first}"
    budget = f" of {_size(record.budget_bytes)}" if record.budget_bytes else ""
    notes = [
        f"memory at most {_size(record.peak_memory_bytes)}",
        f"in flight at most {_size(record.peak_bytes_in_flight)}{budget}",
    ]
    if record.decisions:
        notes.append(f"{len(record.decisions):,} rebalance{'s' * (len(record.decisions) != 1)}")
    if record.worker_deaths:
        notes.append(f"{record.worker_deaths} workers died")
    if record.failures_total:
        notes.append(_failed(record))
    yield ", ".join(notes)


def _rows(step: StepStats) -> Iterator[Sequence[str]]:
    how = (
        f"{step.busy_share:.0%}",
        _seconds(step.service_s_mean),
        _seconds(step.service_s_max),
        _seconds(step.queue_s_mean),
        _seconds(step.queue_s_max),
        _workers(step),
        _size(step.peak_worker_bytes),
    )
    for position, stage in enumerate(step.stages):
        yield (f"{'+ ' * (position > 0)}{stage.name}", *_counts(stage), *(how if position == 0 else ("",) * len(how)))


def _counts(stage: StageStats) -> tuple[str, ...]:
    tasks = (stage.tasks_in, stage.tasks_out, stage.tasks_dropped, stage.tasks_failed)
    items = (stage.items_in, stage.items_out, stage.items_failed)
    return tuple(f"{count:,}" for count in (*tasks, *items))


def _workers(step: StepStats) -> str:
    """Return the fewest and most workers between the first start and the last end."""
    counts = [count for _, count in step.workers]
    while counts and counts[0] == 0:
        counts.pop(0)
    while counts and counts[-1] == 0:
        counts.pop()
    if not counts:
        return "0"
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}-{high}"


def _seconds(seconds: float) -> str:
    if seconds == 0:
        return "0 s"
    for limit, scale, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (120.0, 1.0, "s"), (7200.0, 1 / 60, "min")):
        if seconds < limit:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds / 3600:.3g} h"


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TB"
