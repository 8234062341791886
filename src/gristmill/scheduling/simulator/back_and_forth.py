"""Catches a balancer that goes back and forth: two decisions that undo each other although nothing was learnt.

The *staffing* of a step is where its workers are: node and GPUs of each worker that starts or is ready. Reserved places
do not count before a worker starts there. A step *goes back* if it returns to a staffing that it has left, or replaces
a worker by another in an equal place. On the same evidence that may happen once: a plan is made before it is known when
its workers are up and others have left, and the next one may correct it. A second time is a failure. A balancer that
never stops changing its mind on the same evidence goes back again and again, so every livelock of this kind is caught.

docs/simulator.md lists what counts as evidence.
"""

from __future__ import annotations

from gristmill.scheduling.look import service_by_kind
from gristmill.scheduling.placement import Placement
from gristmill.scheduling.state import State, StepRec, WorkerRec, WorkerState

Staffing = tuple[tuple[int, Placement], ...]

_NEWS = 32
"""An estimate that moved by more than one part in so many is evidence."""


class BackAndForth:
    """What each step's staffing has been since the last evidence."""

    def __init__(self, corrections: int = 1) -> None:
        self._corrections = corrections
        """How often a step may go back on the same evidence."""
        self._evidence = -1
        self._estimates: list[dict[int, int]] = []
        self._seen: list[list[Staffing]] = []
        """By step, oldest first."""
        self._workers: list[set[int]] = []
        self._back: list[int] = []
        """How often each step went back."""

    def check(self, s: State) -> None:
        """Raise `AssertionError` if a step is back at a staffing that it had left. Call it after every event."""
        if s.evidence != self._evidence:
            self._begin(s)
            return
        for step, seen, before in zip(s.steps, self._seen, self._workers, strict=True):
            if not step.dedicated:
                continue
            workers = {w.id for w in _staying(step)}
            now = _staffing(step)
            replaced = now == seen[-1] and before - workers
            if replaced or (now != seen[-1] and now in seen):
                if _moved(self._estimates, _estimates(s)):
                    self._begin(s)
                    return
                self._back[step.index] += 1
                assert self._back[step.index] <= self._corrections, (
                    f"the workers of '{step.spec.name}' go back and forth without new evidence: {_words(seen, now)}"
                )
            if now != seen[-1]:
                seen.append(now)
            before.clear()
            before.update(workers)

    def _begin(self, s: State) -> None:
        self._evidence = s.evidence
        self._estimates = _estimates(s)
        self._seen = [[_staffing(step)] for step in s.steps]
        self._workers = [{w.id for w in _staying(step)} for step in s.steps]
        self._back = [0] * len(s.steps)


def _staying(step: StepRec) -> list[WorkerRec]:
    return [w for w in step.workers.values() if w.state <= WorkerState.READY]


def _staffing(step: StepRec) -> Staffing:
    return tuple(sorted(((w.node, w.placement) for w in _staying(step)), key=_order))


def _order(place: tuple[int, Placement]) -> tuple[int, tuple[int, ...], int]:
    return place[0], place[1].gpus, place[1].gpu_share


def _estimates(s: State) -> list[dict[int, int]]:
    """For each step the time per task on each kind of node, running units included, and the setup time as kind -1."""
    return [{**service_by_kind(s, step), -1: step.setup_us} if step.dedicated else {} for step in s.steps]


def _moved(before: list[dict[int, int]], after: list[dict[int, int]]) -> bool:
    return any(
        abs(now - old.get(kind, now)) * _NEWS > max(old.get(kind, now), 0)
        for old, new in zip(before, after, strict=True)
        for kind, now in new.items()
    )


def _words(seen: list[Staffing], now: Staffing) -> str:
    """How many workers it had on which nodes, one staffing after the other."""
    return ", then ".join(str([node for node, _ in x]) for x in [*seen[-3:], now])
