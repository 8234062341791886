"""A moment of a run for observers: made of the scheduler's snapshot, the account of its stages and the ledger."""

from __future__ import annotations

from gristmill.backends.engine.account import RunAccount
from gristmill.ledger.run import RunLedger
from gristmill.metrics.observer import DocumentsMoment, FailureMoment, Moment, StageMoment
from gristmill.metrics.rates import InputProgress
from gristmill.scheduling.snapshot import Snapshot

_SHOWN_FAILURES = 20


def moment_of(
    snapshot: Snapshot,
    memory: tuple[int, int],
    progress: InputProgress | None,
    account: RunAccount,
    ledger: RunLedger | None,
) -> Moment:
    """Return what observers see now. ``memory`` is what all processes use, and the limit (0: none)."""
    failures = account.failures[-_SHOWN_FAILURES:]
    first = len(account.failures) - len(failures) + 1
    return Moment(
        snapshot,
        *memory,
        progress,
        stages=_stages(account),
        documents=None if ledger is None else _documents(ledger),
        failures=tuple(
            FailureMoment(number, x.task_id, x.stage, x.error, x.items) for number, x in enumerate(failures, first)
        ),
        failures_total=account.failures_total,
        steps_memory=tuple(account.peak_worker_bytes),
        worker_bytes=tuple(account.worker_bytes.get(step, 0) for step in range(len(account.peak_worker_bytes))),
        idle_bytes=account.worker_bytes.get(None, 0),
    )


def _stages(account: RunAccount) -> tuple[StageMoment, ...]:
    return tuple(
        StageMoment(
            name=x.name,
            step=step,
            tasks_in=x.tasks_in,
            items_in=x.items_in,
            tasks_done=x.tasks_done,
            tasks_out=x.tasks_out,
            items_out=x.items_out,
            tasks_dropped=x.tasks_dropped,
            tasks_failed=x.tasks_failed,
            items_failed=x.items_failed,
            busy_s=x.busy_s,
        )
        for step, stages in enumerate(account.stages)
        for x in stages
    )


def _documents(ledger: RunLedger) -> DocumentsMoment:
    whole = ledger.total()
    return DocumentsMoment(
        read=whole.documents,
        made=whole.made,
        kept=whole.kept,
        merged=whole.merged,
        dropped=dict(whole.dropped),
        errored=dict(whole.errored),
        failed=whole.failed,
        counters=dict(whole.counters),
        problems=len(ledger.problems),
    )
