"""Catches a balancer that goes back and forth: two decisions that undo each other without new evidence.

The *staffing* of a step is where its workers are: node and GPUs of each worker that starts or is ready. Reserved places
do not count before a worker starts there. A step *goes back* if it returns to a staffing that it has left, or replaces
a worker by another in an equal place. Without new evidence that is a failure, the first time it happens.

The scheduler ensures this by a rule of its own (`balance_state.py`). This check does not use that rule: it compares
staffings. docs/simulator.md lists what counts as evidence.
"""

from __future__ import annotations

from gristmill.scheduling.placement import Placement
from gristmill.scheduling.records import StepRec, WorkerRec, WorkerState
from gristmill.scheduling.state import State

Staffing = tuple[tuple[int, Placement], ...]


class BackAndForth:
    """The staffing of each step since the last evidence."""

    def __init__(self) -> None:
        self._evidence = -1
        self._seen: list[list[Staffing]] = []
        """By step, oldest first."""
        self._workers: list[set[int]] = []

    def check(self, s: State) -> None:
        """Raise `AssertionError` if a step is back at a staffing that it had left. Call it after every event."""
        if s.ending.stopping or s.balance.evidence != self._evidence:
            self._evidence = s.balance.evidence
            self._seen = [[_staffing(step)] for step in s.steps]
            self._workers = [{w.id for w in _staying(step)} for step in s.steps]
            return
        for step, seen, before in zip(s.steps, self._seen, self._workers, strict=True):
            if not step.dedicated:
                continue
            workers = {w.id for w in _staying(step)}
            now = _staffing(step)
            replaced = now == seen[-1] and before - workers
            assert not replaced and (now == seen[-1] or now not in seen), (
                f"the workers of '{step.spec.name}' go back and forth without new evidence: {_words(seen, now)}"
            )
            if now != seen[-1]:
                seen.append(now)
            before.clear()
            before.update(workers)


def _staying(step: StepRec) -> list[WorkerRec]:
    return [w for w in step.workers.values() if w.state <= WorkerState.READY]


def _staffing(step: StepRec) -> Staffing:
    return tuple(sorted(((w.node, w.placement) for w in _staying(step)), key=_order))


def _order(place: tuple[int, Placement]) -> tuple[int, tuple[int, ...], int]:
    return place[0], place[1].gpus, place[1].gpu_share


def _words(seen: list[Staffing], now: Staffing) -> str:
    """How many workers it had on which nodes, one staffing after the other."""
    return ", then ".join(str([node for node, _ in x]) for x in [*seen[-3:], now])
