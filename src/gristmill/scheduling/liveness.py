"""Liveness: what counts as under way, and how the scheduler ensures that something is while work remains.

Something is *under way* if an event is certain to follow from it: a unit runs, a worker starts, stops or is killed,
a node is set up, a plan is made, or the source was asked. A timer alone is not: when it fires, nothing may come of it.

While work remains that can run on the nodes, something is under way after every event (`stall`). The scheduler ensures
this in three steps, each only if the one before changed nothing (`ensure_progress`):

1. Units that are suspended in draining workers, or on nodes that became too small, go back to their queues.
2. The balancer runs, once for each piece of evidence.
3. The step furthest downstream whose work may start gets a worker if it has none for it. Idle workers leave for it.
"""

from __future__ import annotations

from gristmill.scheduling import workers
from gristmill.scheduling.balance import rebalance
from gristmill.scheduling.credit import fits_budget
from gristmill.scheduling.dispatch import dispatch, may_run
from gristmill.scheduling.placement import misfit
from gristmill.scheduling.records import StepRec, WorkerState
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


def stall(s: State) -> str:
    """Why the run makes no progress although it could, or an empty string."""
    if s.ending.finished or s.running or s.source.pulling or s.balance.solving or under_way(s):
        return ""
    if any(not done for node in s.nodes.values() for done in node.set_up.values()):
        return ""
    waiting = [step for step in s.steps if step.live]
    nodes = [(n.cpu, n.memory, n.free.gpu_memory) for n in s.nodes.values()]
    if any(misfit(step.spec, nodes) for step in waiting):
        # A step that fits no node now waits for one. Steps before it may wait for the memory that it will free.
        waiting = [step for step in waiting if not misfit(step.spec, nodes) and _may_start(s, step)]
    if waiting:
        return f"nothing runs although work remains at {[step.spec.name for step in waiting]}"
    if not s.tasks and not s.source.ended and s.nodes:
        return "the source is not asked although nothing is left to do"
    if not s.tasks and s.source.ended:
        return "all work is done and the run does not end"
    return ""


def _may_start(s: State, step: StepRec) -> bool:
    return step.queue.size > 0 and may_run(s, step) and fits_budget(s, step)
