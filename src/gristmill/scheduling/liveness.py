"""Liveness: what counts as under way, and how the scheduler ensures that something is while work remains.

Something is *under way* if an event is certain to follow from it: a unit runs, a worker starts, stops or is killed,
a node is set up, a plan is made, or the source was asked. A timer alone is not: when it fires, nothing may come of it.

While work remains that can run on the nodes, something is under way after every event. The scheduler ensures this in
three steps, each only if the one before changed nothing (`ensure_progress`):

1. Units that are suspended in draining workers, or on nodes that became too small, go back to their queues.
2. The balancer runs, once for each piece of evidence.
3. The step furthest downstream whose work may start gets a worker if it has none for it. Idle workers leave for it.
"""

from __future__ import annotations

from gristmill.scheduling import workers
from gristmill.scheduling.balance import rebalance
from gristmill.scheduling.dispatch import dispatch
from gristmill.scheduling.records import WorkerState
from gristmill.scheduling.state import State
from gristmill.scheduling.time_sharing import unblock_step


def under_way(s: State) -> bool:
    """Whether an event is certain to follow from what the scheduler has commanded."""
    return (
        s.running > 0
        or s.source.pulling
        or s.balance.solving > 0
        or any(
            w.state is WorkerState.STARTING or w.state is WorkerState.STOPPING or w.kill_cause is not None
            for w in s.workers.values()
        )
    )


def ensure_progress(s: State) -> None:
    """Ensure progress. Call it when no unit runs although tasks are left."""
    if workers.put_back_stuck(s):
        _hand_out(s)
    if not under_way(s) and s.balance.claim_forced_run():
        rebalance(s)
        _hand_out(s)
    if not under_way(s) and unblock_step(s):
        _hand_out(s)


def _hand_out(s: State) -> None:
    dispatch(s)
    workers.start_shared(s)
