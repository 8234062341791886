"""Who is missed least, and steps that take turns because not all of them can have a worker."""

from __future__ import annotations

from gristmill.scheduling.credit import has_room
from gristmill.scheduling.crew import drain, put_back_suspended, start, stop_if_drained
from gristmill.scheduling.feed import is_set_up, may_run
from gristmill.scheduling.state import State, StepRec, WorkerRec, WorkerState


def staying(step: StepRec) -> list[WorkerRec]:
    return [w for w in step.workers.values() if w.state <= WorkerState.READY and not w.being_replaced]


def least_missed(s: State, step: StepRec) -> list[WorkerRec]:
    """Still starting, then idle, then with the least to finish; youngest first."""
    mean = step.service.service_us() * step.spec.batch_size

    def left(w: WorkerRec) -> int:
        """What it has to finish, roughly: a task that has taken longer than most may take much longer yet."""
        units = len(w.assigned) + len(w.suspended)
        elapsed = s.now - w.head_since if w.assigned else 0
        return units * mean + (elapsed if elapsed > mean else -elapsed)

    return sorted(staying(step), key=lambda w: (w.state, left(w), -w.id))


def _start_somewhere(s: State, step: StepRec) -> bool:
    for node in s.nodes.values():
        if not is_set_up(node, step):
            continue
        placement = node.room.find(step.spec)
        if placement is not None:
            start(s, node, step, placement)
            return True
    return False


def take_turns(s: State, active: list[StepRec]) -> None:
    """Not every step can have a worker: the step furthest downstream that could run goes first, idle workers make room.

    While it waits no other step gets a worker, or the room that is made for it would never be large enough.
    """
    for step in reversed(active):
        if not _waits_for_turn(s, step) or _start_somewhere(s, step):
            continue
        for other in active:
            for w in list(other.workers.values()):
                if _could_make_room(s, other, w):
                    s.decide(f"{step.spec.name}: its turn; a worker of {other.spec.name} is idle and makes room")
                    put_back_suspended(s, w)
                    drain(s, w)
                    stop_if_drained(s, w)
        return


def _could_make_room(s: State, step: StepRec, w: WorkerRec) -> bool:
    """A dedicated worker that has nothing to do. One that waits for a CPU has."""
    if not w.is_idle or w.state not in (WorkerState.READY, WorkerState.DRAINING):
        return False
    return w.state is WorkerState.DRAINING or not (step.queued and has_room(s, step, rebuilds=not w.has_suspect))


def _waits_for_turn(s: State, step: StepRec) -> bool:
    return (
        step.queued > 0
        and not staying(step)
        and has_room(s, step)
        and any(is_set_up(node, step) for node in s.nodes.values())
    )


def turn_due(s: State) -> bool:
    """Whether a step waits for a worker while there is room, or a dedicated worker that has nothing to do."""
    starved = [x for x in s.steps if x.dedicated and not x.workers and may_run(s, x) and _waits_for_turn(s, x)]
    if not starved:
        return False
    if any(node.room.find(step.spec) for step in starved for node in s.nodes.values()):
        return True
    return any(_could_make_room(s, step, w) for step in s.steps if step.dedicated for w in step.workers.values())


def refresh_for_suspects(s: State) -> None:
    """A suspect needs a fresh worker: make one by replacing the idlest, if none is coming."""
    for step in s.steps:
        if not step.dedicated or not step.suspects:
            continue
        if any(w.state is not WorkerState.READY or w.is_fresh for w in step.workers.values()):
            continue
        if not step.workers or _start_somewhere(s, step):
            continue
        s.decide(f"{step.spec.name}: a worker is replaced, to try a suspected task in a fresh one")
        drain(s, least_missed(s, step)[0])
