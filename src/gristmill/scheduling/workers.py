"""Workers: they start, get ready, drain, stop, die, and are replaced when they are old."""

from __future__ import annotations

from gristmill.scheduling import in_flight
from gristmill.scheduling.assignment import update_accepting
from gristmill.scheduling.commands import Abort, Cancel, KillWorker, ReturnWaiting, StartWorker, StopWorker
from gristmill.scheduling.dispatch import can_host, free_for_shared, may_run, shared_wanted
from gristmill.scheduling.events import (
    Death,
    SetupFailed,
    StepSetUp,
    UnitsReturned,
    WorkerDied,
    WorkerLeft,
    WorkerReady,
)
from gristmill.scheduling.failure_policy import is_setup_hopeless
from gristmill.scheduling.failures import units_lost
from gristmill.scheduling.lost_data.recovery import requeue_uncounted
from gristmill.scheduling.placement import Placement
from gristmill.scheduling.progress import cancel, cancel_queued, pull_answered, remove_units
from gristmill.scheduling.records import NodeRec, StepRec, WorkerMove, WorkerRec, WorkerState
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.state import State


def start(s: State, node: NodeRec, step: StepRec | None, placement: Placement) -> WorkerRec:
    w = WorkerRec(s.new_worker_id(), node.id, None if step is None else step.index, placement, s.now)
    s.workers[w.id] = w
    node.add(w)
    s.group_of(w).start(w)
    cpu = placement.cpu if step is not None else s.shared.cpu_floor
    limit = step.in_flight if step is not None else 0
    if limit:
        w.note_begun_units()
    s.out.append(StartWorker(w.id, node.id, w.step, cpu, placement.gpus, placement.gpu_share, limit))
    return w


def start_shared(s: State) -> None:
    """Start shared workers for work that finds none."""
    if s.ending.stopping or not any(step.queue.size and not step.dedicated for step in s.steps):
        return
    for node in s.nodes.values():
        if _wants_first(s, node):
            start(s, node, None, Placement())
        if free_for_shared(s, node) >= s.shared.least_cpu and not _has_idle(s, node):
            starting = sum(
                1 for w in s.shared.workers.values() if w.node == node.id and w.state == WorkerState.STARTING
            )
            for _ in range(shared_wanted(s, node) - starting):
                start(s, node, None, Placement())
    if s.suspects.shared and s.nodes:
        _start_for_suspects(s)


def _wants_first(s: State, node: NodeRec) -> bool:
    """Whether there is shared work and no worker for it here. Dedicated workers yield CPUs once there is one."""
    return not node.shared_workers and any(
        x.queue.size and not x.dedicated and may_run(s, x) and can_host(node, x) for x in s.steps
    )


def _has_idle(s: State, node: NodeRec) -> bool:
    return any(w.node == node.id and w.is_open for w in s.shared.idle.values())


def _start_for_suspects(s: State) -> None:
    """Suspects need fresh workers: start some beyond those that work needs, but not without end."""
    for step in s.steps:
        if step.dedicated or not step.queue.suspects:
            continue
        nodes = [node for node in s.nodes.values() if can_host(node, step)]
        if not nodes:
            continue  # fresh workers would not help it, and none of the other steps may go for it
        staying = [w for w in s.shared.workers.values() if w.state <= WorkerState.READY]
        fresh = sum(1 for w in staying if w.is_fresh and any(w.node == node.id for node in nodes))
        most = 4 + sum(4 * node.cpu // UNIT for node in s.nodes.values()) - len(staying)
        for _ in range(min(len(step.queue.suspects), 4, most) - fresh):
            start(s, nodes[0], None, Placement())
        if most <= 0 and not fresh and len(staying) == len(s.shared.workers):
            drain(s, min(staying, key=lambda w: (len(w.assigned) + len(w.suspended), w.id)))


def ready(s: State, w: WorkerRec, e: WorkerReady) -> None:
    if w.state is not WorkerState.STARTING:
        return
    w.come_up(s.now)
    if w.step is not None:
        _add_setup(s, s.steps[w.step], e.setup_us)
    else:
        s.shared.come_up()
    update_accepting(s, w)
    if w.replaces is not None and w.replaces in s.workers:
        s.balance.add_evidence()
        drain(s, s.workers[w.replaces])


def step_set_up(s: State, w: WorkerRec, e: StepSetUp) -> None:
    _add_setup(s, s.steps[e.step], e.setup_us)
    if e.step in w.hosts:
        w.hosts[e.step] = True
    w.start_clock(s.now)
    update_accepting(s, w)


def _add_setup(s: State, step: StepRec, setup_us: int) -> None:
    step.setup.add(setup_us)
    s.balance.add_evidence(step.setup.count == 1)


def setup_failed(s: State, w: WorkerRec, e: SetupFailed) -> None:
    step = s.steps[e.step]
    step.setup.fail()
    s.balance.add_evidence()
    if w.step is None:
        give_back(s, w, e.step)
    if step.setup.failures >= s.config.setup_attempts:
        stop_run(s, f"setup of '{step.spec.name}' failed {step.setup.failures} times. The last error was:\n{e.error}")


def give_back(s: State, w: WorkerRec, index: int) -> None:
    """Queue the units of a step again that a shared worker could not set up. This attempt does not count."""
    step = s.steps[index]
    for unit in reversed(w.take_assigned(index)):
        s.unassign(w, unit)
        unit.keep_from(w.id)
        requeue_uncounted(s, step, unit)
    if w.hosts.pop(index, None) is not None and w.state <= WorkerState.READY:
        s.unhost([index])
    w.start_clock(s.now)
    update_accepting(s, w)
    stop_if_drained(s, w)


def put_back_suspended(s: State, w: WorkerRec) -> None:
    """Units suspended in a worker go back to their queue; what they have delivered is not delivered again."""
    for unit in list(w.suspended.values()):
        step = s.steps[unit.step]
        s.unsuspend(w, unit)
        s.out.append(Cancel(w.id, unit.key))
        requeue_uncounted(s, step, unit)


def put_back_stuck(s: State) -> bool:
    """Queue what is suspended in draining workers again if nothing runs or starts: it may hold the memory it waits for.

    What is suspended on a node that has become too small for it goes elsewhere, and so does what keeps all slots of a
    worker from a unit that makes lost data again; True if something did.
    """
    if any(w.state is WorkerState.STARTING for w in s.workers.values()):
        return False
    moved = False
    for w in s.workers.values():
        if w.state is WorkerState.DRAINING and w.suspended:
            put_back_suspended(s, w)
            stop_if_drained(s, w)
        elif w.suspended and (_is_outgrown(s, w) or in_flight.keeps_rebuild_waiting(s, w)):
            put_back_suspended(s, w)
            update_accepting(s, w)
            moved = True
    return moved


def _is_outgrown(s: State, w: WorkerRec) -> bool:
    """Something suspended in a shared worker needs more than its node, which has changed in size, has now."""
    node = s.nodes[w.node]
    if w.step is not None or w.kill_cause is not None or not node.resized:
        return False
    return not all(can_host(node, s.steps[unit.step]) for unit in w.suspended.values())


def drain(s: State, w: WorkerRec) -> None:
    """Let a worker finish what it has, then leave. One that is still starting is not needed at all."""
    if w.state >= WorkerState.DRAINING:
        return
    starting = w.state is WorkerState.STARTING
    _count_out(s, w)
    w.move(WorkerMove.DRAINED)
    update_accepting(s, w)
    s.group_of(w).note_size(s.now)
    if starting:
        stop(s, w, now=True)
        return
    if w.begun is not None and len(w.assigned) > len(w.begun):
        s.out.append(ReturnWaiting(w.id))
    stop_if_drained(s, w)


def units_returned(s: State, w: WorkerRec, e: UnitsReturned) -> None:
    """Units that a worker did not begin, or has cancelled, go back to their queue; these attempts do not count."""
    if s.ending.stopping:
        return
    for key in reversed(e.units):
        unit = w.suspended.get(key)
        if unit is not None:
            s.unsuspend(w, unit)
        else:
            unit = in_flight.take_out(s, w, key)
        requeue_uncounted(s, s.steps[unit.step], unit)
    in_flight.note_begun(s, w)
    update_accepting(s, w)
    stop_if_drained(s, w)


def stop_if_drained(s: State, w: WorkerRec) -> None:
    if w.state is WorkerState.DRAINING and not w.assigned and not w.suspended:
        stop(s, w)


def _count_out(s: State, w: WorkerRec) -> None:
    if w.state <= WorkerState.READY:
        s.unhost(w.hosts)


def stop(s: State, w: WorkerRec, now: bool = False) -> None:
    _count_out(s, w)
    w.move(WorkerMove.STOPPED)
    update_accepting(s, w)
    s.out.append(StopWorker(w.id, now))


def left(s: State, w: WorkerRec, e: WorkerLeft) -> None:
    """A worker reports that it leaves. Its work, if it has any, goes elsewhere."""
    units_lost(s, w, Death.KILLED, None, "", ())
    remove(s, w)


def remove(s: State, w: WorkerRec) -> None:
    """Remove a worker that is gone; what it occupied is free."""
    expected = w.state >= WorkerState.DRAINING
    s.balance.add_evidence(not expected)
    del s.workers[w.id]
    _count_out(s, w)
    w.move(WorkerMove.LEFT)
    update_accepting(s, w)
    node = s.nodes.get(w.node)
    if node is not None:
        node.remove(w)
    s.group_of(w).remove(w, s.now)
    if w.being_replaced:
        for other in s.workers.values():
            if other.replaces == w.id:
                other.replace(None)
    elif w.replaces is not None and w.replaces in s.workers:
        s.workers[w.replaces].mark_replaced(False)
        s.balance.request("a worker stays because its replacement left")
    if expected and any(step.plan.reserved for step in s.steps):
        s.balance.freed_nodes.append(w.node)
    else:
        s.balance.request("a worker left")


def died(s: State, w: WorkerRec, e: WorkerDied) -> None:
    if w.state is WorkerState.STOPPING:
        remove(s, w)
        return
    s.count_death(w)
    cause = w.kill_cause or e.cause
    starting = w.state is WorkerState.STARTING
    idle = not w.assigned and not w.suspended
    units_lost(s, w, cause, e.running, e.detail, e.begun)
    remove(s, w)
    setting_up = e.setting_up if e.setting_up is not None else (w.step if starting else None)
    if cause.is_no_fault:
        return
    if setting_up is not None:
        _died_in_setup(s, s.steps[setting_up], cause, e.detail)
    elif starting:
        if s.shared.fail_start() >= s.config.isolated_kills:
            stop_run(s, f"workers do not survive their start: the last one {_how(cause, e.detail)}")
    elif idle:
        _died_idle(s, w, cause, e.detail)


def _died_idle(s: State, w: WorkerRec, cause: Death, detail: str) -> None:
    """Count the death of a worker that had nothing to do. Others take its place, but not without end."""
    step = None if w.step is None else s.steps[w.step]
    deaths = s.group_of(w).idle_deaths
    done = sum(x.counts.units_done for x in (s.steps if step is None else [step]))
    deaths.add(done)
    if deaths.count >= s.config.isolated_kills:
        whose = "workers" if step is None else f"workers of '{step.spec.name}'"
        stop_run(
            s, f"{whose} die while they have nothing to do, {deaths.count} in a row: the last one {_how(cause, detail)}"
        )


def _how(cause: Death, detail: str) -> str:
    return f"{cause.value} ({detail})" if detail else cause.value


def _died_in_setup(s: State, step: StepRec, cause: Death, detail: str) -> None:
    if cause.is_own_fault:
        step.setup.fail()
    else:
        step.setup.kill()
    if is_setup_hopeless(step.setup.failures, step.setup.kills, s.config):
        stop_run(s, f"no worker survives the setup of '{step.spec.name}': the last one {_how(cause, detail)}")


def kill_overdue(s: State) -> None:
    """End workers whose unit, or the setup of whose step, runs past its timeout."""
    for w in s.workers.values():
        if w.kill_cause is None and _is_overdue(s, w):
            if w.begun:
                w.note_overdue(in_flight.overdue(s, w))
            kill(s, w, Death.TIMED_OUT)


def kill(s: State, w: WorkerRec, cause: Death) -> None:
    """End a worker by force. What it has stays with it until it is known to be dead."""
    w.note_kill(cause)
    s.out.append(KillWorker(w.id))
    update_accepting(s, w)


def _is_overdue(s: State, w: WorkerRec) -> bool:
    timeout, since, allowed = s.config.setup_timeout_us, w.started_at, 1
    if w.state is not WorkerState.STARTING:
        if not w.assigned or w.state is WorkerState.STOPPING:
            return False
        if w.begun is not None:
            return bool(in_flight.overdue(s, w))
        unit = w.assigned[0]
        since = w.head_since
        if w.hosts.get(unit.step, True):
            timeout = s.steps[unit.step].spec.timeout_us
            allowed = len(unit.tasks) * (1 + unit.replay)
    return timeout is not None and s.now - since > timeout * allowed


def recycle(s: State) -> None:
    """Replace workers that are older than their stages allow: first the new one starts, then the old one leaves."""
    for w in list(s.workers.values()):
        if w.state is WorkerState.READY and not w.being_replaced and _is_too_old(s, w):
            _recycle(s, w)


def _is_too_old(s: State, w: WorkerRec) -> bool:
    """Whether a worker has reached its lifetime, and the interval since the last replacement has passed."""
    if w.step is None:
        limits = [(s.steps[i].spec.lifetime_us, s.steps[i].spec.restart_interval_us) for i in w.aging]
        limits.append((s.config.shared_lifetime_us, s.config.shared_restart_interval_us))
        lifetime, interval = min(((age, every) for age, every in limits if age is not None), default=(None, 0))
    else:
        spec = s.steps[w.step].spec
        lifetime, interval = spec.lifetime_us, spec.restart_interval_us
    since = s.group_of(w).last_recycled
    return lifetime is not None and s.now - w.ready_at >= lifetime and s.now - since >= interval


def _recycle(s: State, w: WorkerRec) -> None:
    step = None if w.step is None else s.steps[w.step]
    node = s.nodes[w.node]
    place = Placement() if step is None else node.free.find(step.spec)
    if step is not None and place is None and any(x.state is not WorkerState.READY for x in step.workers.values()):
        return
    s.balance.add_evidence()
    w.mark_replaced(True)
    s.group_of(w).recycle(s.now)
    name = "a shared worker" if step is None else f"a worker of {step.spec.name}"
    age = f"{(s.now - w.ready_at) / 1e6:.0f} s"
    if step is None and not w.assigned and not w.suspended:
        s.decide(f"{name} that has nothing to do leaves after {age}")
        drain(s, w)
    elif place is not None:
        s.decide(f"{name} is replaced after {age}")
        start(s, node, step, place).replace(w.id)
    else:
        s.decide(f"{name} is restarted after {age}; both do not fit on the node")
        drain(s, w)


def stop_run(s: State, reason: str) -> None:
    """End the run now: everything that is not done is cancelled."""
    if s.ending.stopping:
        return
    if reason:
        s.out.append(Abort(reason))
    s.ending.stop(reason)
    s.source.end()
    pull_answered(s)
    for w in s.workers.values():
        for unit in remove_units(s, w):
            for t in unit.tasks:
                cancel(s, s.steps[unit.step], t)
    for step in s.steps:
        cancel_queued(s, step, everything=True)
        step.end(is_complete=False)
    stop_all(s, now=True)


def stop_all(s: State, now: bool = False) -> None:
    for w in s.workers.values():
        if w.state is not WorkerState.STOPPING:
            stop(s, w, now or w.state is WorkerState.STARTING)
