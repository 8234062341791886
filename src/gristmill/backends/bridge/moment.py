"""A moment of a run on a bridge for observers, made of the run's own account.

Ray Data and Xenna decide how many workers there are and when tasks run. So bytes in queues, the time in queues, memory,
GPUs, plans of the balancer and the bottleneck are not known here.
"""

from __future__ import annotations

import time

from gristmill.backends.bridge.accounts import RunAccounts
from gristmill.backends.engine.account import input_progress
from gristmill.backends.engine.moment import moment_of
from gristmill.metrics.observer import Moment
from gristmill.scheduling.snapshot import Snapshot, StepSnapshot


def bridge_moment(accounts: RunAccounts, has_ended: bool = False) -> Moment:
    """Return what observers see now. ``has_ended``: nothing runs any more."""
    steps: list[StepSnapshot] = []
    for i in range(len(accounts.plan.steps)):
        steps.append(_step(accounts, i, has_ended, before_ended=not steps or steps[-1].ended))
    snapshot = Snapshot(
        now_us=int((time.perf_counter() - accounts.begun) * 1e6),
        steps=tuple(steps),
        bottleneck=None,
        held_bytes=0,
        reserved_bytes=0,
        budget_bytes=0,
        source_taken=accounts.tasks_in[0],
        source_total=accounts.tasks_in[0],
        draining=False,
        shared_busy=0,
        shared_idle=0,
        shared_starting=0,
        decisions=(),
    )
    return moment_of(snapshot, (0, 0), input_progress(accounts.ledger), accounts.account, accounts.ledger)


def _step(accounts: RunAccounts, i: int, has_ended: bool, before_ended: bool) -> StepSnapshot:
    open_ = accounts.open[i].units
    running, busy = (0, 0) if has_ended else (open_.total(), len(open_))
    left = accounts.tasks_in[i] - accounts.tasks_ended[i]
    queued = max(0, left - running)
    known = accounts.workers[i][-1][1] if accounts.workers[i] else 0
    ended = has_ended or (before_ended and not left and accounts.tasks_in[i] > 0)
    stages = accounts.account.stages[i]
    return StepSnapshot(
        name=accounts.plan.steps[i].name,
        dedicated=True,
        busy=busy,
        idle=0 if has_ended else max(0, known - busy),
        starting=0,
        queued=queued,
        queued_bytes=0,
        running=running,
        tasks_done=accounts.tasks_ended[i] - accounts.tasks_lost[i],
        items_done=stages[0].items_done,
        tasks_failed=accounts.tasks_lost[i],
        busy_us=accounts.busy_ns[i] // 1000,
        service_us=accounts.busy_ns[i] // 1000 // max(1, accounts.tasks_ended[i]),
        ended=ended,
        waits_for_input=not (queued or running or ended),
        units_done=accounts.units[i],
        latency=tuple(accounts.latency[i].counts),
        latency_us=accounts.latency[i].total_us,
        retries=accounts.retries[i],
        started=max(stage.setups for stage in stages),
        deaths=accounts.open[i].deaths,
        setups=stages[0].setups,
    )
