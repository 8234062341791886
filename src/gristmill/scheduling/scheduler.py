"""The state machine: `Scheduler.handle(events, now)` gives the commands that follow from what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gristmill.scheduling import events as ev
from gristmill.scheduling import workers
from gristmill.scheduling.assignment import update_depth
from gristmill.scheduling.balance import is_due, next_turn, rebalance, solved
from gristmill.scheduling.commands import Command, Finish, SetUpNode
from gristmill.scheduling.credit import update_headroom
from gristmill.scheduling.dispatch import dispatch
from gristmill.scheduling.failures import unit_failed
from gristmill.scheduling.liveness import ensure_progress
from gristmill.scheduling.lost_data.events import data_lost, inputs_lost, rebuild_emitted, rebuild_finished
from gristmill.scheduling.lost_data.recovery import fetch_deferred
from gristmill.scheduling.moves import fill_freed_places
from gristmill.scheduling.placement import Capacity, misfit
from gristmill.scheduling.progress import emitted, finished, pull_answered, source_gave
from gristmill.scheduling.records import NodeRec, StepRec, WorkerRec
from gristmill.scheduling.settings import SchedulerConfig, StepSpec
from gristmill.scheduling.snapshot import Snapshot
from gristmill.scheduling.state import SharedPool, State
from gristmill.scheduling.summary import snapshot
from gristmill.scheduling.time_sharing import refresh_for_suspects, turn_due


class Scheduler:
    """Decides everything about a run and does nothing itself.

    Pass it the events in order, with the time in microseconds, which never goes back, and carry out its commands.
    Events about workers that it has already given up are ignored. It is not thread-safe.
    """

    def __init__(self, steps: Sequence[StepSpec], config: SchedulerConfig) -> None:
        if not steps:
            raise ValueError("a run needs at least one step")
        self.state = State(config, [StepRec(i, spec, spec.has_own_workers) for i, spec in enumerate(steps)])
        s = self.state
        s.shared = SharedPool.of([step.spec for step in s.steps if not step.dedicated])
        update_headroom(s)
        for step in s.steps:
            step.service.prior = step.spec.prior
            step.in_flight = step.spec.in_flight
            update_depth(s, step)

    def handle(self, events: ev.Event | Sequence[ev.Event], now: int) -> list[Command]:
        """Take in the events up to ``now`` and return the commands that follow, in order."""
        s = self.state
        s.now = now
        s.out = []
        for event in events if isinstance(events, Sequence) else (events,):
            self._take_in(s, event)
        if s.lost.deferred and not s.ending.stopping:
            fetch_deferred(s)
        _mark_ended(s)
        if s.balance.freed_nodes:
            fill_freed_places(s)
        if is_due(s):
            rebalance(s)
        dispatch(s)
        workers.start_shared(s)
        if s.suspects.dedicated and not s.ending.stopping:
            refresh_for_suspects(s)
        if s.running == 0 and s.tasks and not s.ending.stopping:
            ensure_progress(s)
        if s.balance.taking_turns and not s.balance.solving and turn_due(s):
            next_turn(s)
        _finish_if_done(s)
        return s.out

    def snapshot(self, items: Sequence[int] = ()) -> Snapshot:
        """Return the present state of the run, for views.

        ``items`` are the items that each step has done. Without them, the items of its finished tasks are counted.
        """
        return snapshot(self.state, items)

    @staticmethod
    def _take_in(s: State, event: Any) -> None:
        kind = type(event)
        of_worker = _WORKER_EVENTS.get(kind)
        if of_worker is not None:
            w = s.workers.get(event.worker)
            if w is not None:
                of_worker(s, w, event)
            return
        _EVENTS[kind](s, event)


def _node_joined(s: State, e: ev.NodeJoined) -> None:
    if s.ending.stopping or e.node in s.nodes:
        return
    # Machines of one make differ by some kilobytes.
    kind = s.kinds.setdefault((e.kind, e.cpu, e.memory >> 30, tuple(x >> 30 for x in e.gpus)), len(s.kinds))
    s.nodes[e.node] = NodeRec(e.node, Capacity(e.cpu, e.memory, e.gpus), e.cpu, e.memory, kind)
    for step in s.steps:
        if step.spec.node_setup:
            s.nodes[e.node].set_up[step.index] = False
            s.out.append(SetUpNode(e.node, step.index))
    s.balance.add_evidence()
    s.balance.request("a node joined")


def _node_lost(s: State, e: ev.NodeLost) -> None:
    if s.nodes.pop(e.node, None) is None:
        return
    for w in [w for w in s.workers.values() if w.node == e.node]:
        workers.died(s, w, ev.WorkerDied(w.id, ev.Death.NODE_LOST))
    s.balance.add_evidence()
    s.balance.request("a node was lost")


def _node_resized(s: State, e: ev.NodeResized) -> None:
    node = s.nodes.get(e.node)
    if node is None or s.ending.stopping:
        return
    node.resize(e.cpu, e.memory, e.gpus)
    s.balance.add_evidence()
    s.balance.request("a node changed in size")


def _node_set_up(s: State, e: ev.NodeSetUp) -> None:
    if e.node in s.nodes:
        s.nodes[e.node].set_up[e.step] = True
        s.balance.add_evidence()
        s.balance.request("a node was set up")


def _node_setup_failed(s: State, e: ev.NodeSetupFailed) -> None:
    if e.node not in s.nodes:
        return
    workers.stop_run(s, f"setup_on_node of '{s.steps[e.step].spec.name}' failed:\n{e.error}")


def _source_sized(s: State, e: ev.SourceSized) -> None:
    s.source.know_total(e.total)
    s.balance.add_evidence()


def _source_ended(s: State, e: ev.SourceEnded) -> None:
    s.source.end()
    s.balance.add_evidence()
    pull_answered(s)
    s.source.know_total(s.source.taken)
    s.balance.request("the source ended")


def _tick(s: State, e: ev.Tick) -> None:
    workers.kill_overdue(s)
    workers.recycle(s)


def _interrupted(s: State, e: ev.Interrupted) -> None:
    workers.stop_run(s, "")


def _unit_event(handler: Callable[[State, WorkerRec, Any], None]) -> Callable[[State, WorkerRec, Any], None]:
    """Reports that cross with the order to stop are void; a worker that drains may now be done."""

    def handle(s: State, w: WorkerRec, e: Any) -> None:
        if s.ending.stopping:
            return
        if s.lost.rebuilds and e.unit in s.lost.rebuilds:
            _REBUILD_EVENTS[type(e)](s, w, e)
        else:
            handler(s, w, e)
        workers.stop_if_drained(s, w)

    return handle


_WORKER_EVENTS: dict[type, Callable[[State, WorkerRec, Any], None]] = {
    ev.UnitFinished: _unit_event(finished),
    ev.UnitEmitted: _unit_event(emitted),
    ev.UnitFailed: _unit_event(unit_failed),
    ev.InputsLost: _unit_event(inputs_lost),
    ev.UnitsReturned: workers.units_returned,
    ev.WorkerReady: workers.ready,
    ev.StepSetUp: workers.step_set_up,
    ev.SetupFailed: workers.setup_failed,
    ev.WorkerDied: workers.died,
    ev.WorkerLeft: workers.left,
}

_REBUILD_EVENTS: dict[type, Callable[[State, WorkerRec, Any], None]] = {
    ev.UnitFinished: rebuild_finished,
    ev.UnitEmitted: rebuild_emitted,
    ev.UnitFailed: unit_failed,
    ev.InputsLost: inputs_lost,
}

_EVENTS: dict[type, Callable[[State, Any], None]] = {
    ev.NodeJoined: _node_joined,
    ev.NodeLost: _node_lost,
    ev.NodeResized: _node_resized,
    ev.DataLost: data_lost,
    ev.NodeSetUp: _node_set_up,
    ev.NodeSetupFailed: _node_setup_failed,
    ev.SourceSized: _source_sized,
    ev.SourceGave: source_gave,
    ev.SourceEnded: _source_ended,
    ev.Solved: solved,
    ev.Tick: _tick,
    ev.Interrupted: _interrupted,
}


def _mark_ended(s: State) -> None:
    """Mark steps as ended: the source and all steps before have ended, and no task is left."""
    if not s.source.ended or s.source.pulling:
        return
    for step in s.steps:
        if step.ended:
            continue
        if step.live:
            return
        step.end()
        s.balance.request(f"{step.spec.name} ended")


def _finish_if_done(s: State) -> None:
    if s.ending.finished or not s.steps[-1].ended:
        return
    s.ending.stop()
    if s.workers:
        workers.stop_all(s)
    else:
        s.ending.finish()
        s.out.append(Finish())


def misfits(steps: Sequence[StepSpec], nodes: Sequence[ev.NodeJoined]) -> list[str]:
    """Return the reason for each step that fits on none of the nodes."""
    reasons = (misfit(step, [(n.cpu, n.memory, n.gpus) for n in nodes]) for step in steps)
    return [reason for reason in reasons if reason]
