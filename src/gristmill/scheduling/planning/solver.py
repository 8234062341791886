"""How many workers each step should have, and where, so that the run ends soonest.

A run ends when its last step has done what remains for it. For a moment T each step needs so many workers that
together they do its remaining tasks until then: those that work already do from now on, new ones only after their
setup. The plan is the earliest T for which all these workers fit the nodes, found by bisection; whoever works
already stays where he is unless T gets noticeably earlier if he goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from gristmill.scheduling.placement import Placement
from gristmill.scheduling.planning.draft import Draft, repacked
from gristmill.scheduling.planning.frame import AT_LAST, Frame, Way
from gristmill.scheduling.planning.packing import FOREVER, Crew
from gristmill.scheduling.planning.problem import Load, Plan, Problem
from gristmill.scheduling.planning.search import Effort, Search
from gristmill.scheduling.settings import UNIT

_GRAIN = 10
"""T is found to this power of a half."""
_FEW_NODES = 6
_FEW_STEPS = 10
_EFFORT = 2000
"""How much is searched on few nodes for a plan that ends sooner or moves fewer."""
_DEEPEST = 300
"""Steps times nodes; beyond that a search would get nowhere."""
_LAST_EFFORT = 50_000
"""How much is searched before steps are told to take turns."""


def finish_us(load: Load, kinds: Mapping[int, int]) -> int:
    """When a step would end with the workers it has. ``kinds`` names the kind of each node."""
    crew = Crew(load.tasks)
    for hand in load.hands:
        if hand.node in kinds:
            crew.add(hand.delay_us, load.service_us[kinds[hand.node]])
    return crew.finish()


def solve(problem: Problem) -> Plan:
    """The plan for a problem."""
    if not problem.loads:
        return Plan()
    frame = Frame(problem)
    few = len(problem.sites) <= _FEW_NODES and len(problem.loads) <= _FEW_STEPS
    effort = Effort(_EFFORT if few and all(load.certain for load in problem.loads) else 0)
    least, stay = _as_many_as_fit(frame, False, effort)
    if stay is None:
        filled = _filled(Draft(frame, AT_LAST, least, False))
        least, move = _as_many_as_fit(frame, True, Effort(_LAST_EFFORT))
        if move is None:
            return Plan({load.step: 0 for load in problem.loads}, complete=False)
        aim = AT_LAST
    else:
        filled = _filled(_earliest(frame, least, False, stay, effort))
        least = [n if load.spec.workers else 1 for load, n in zip(problem.loads, filled.count, strict=True)]
        end = filled.finish()
        aim = end - _part(end, problem.margin)
        move = None
        if frame.could(aim, least, True):
            move = _try(frame, aim, least, True) or _search(frame, aim, least, True, effort)
    if move is None:
        ends = filled.finish()
        filled.lend(ends)
        return _plan(filled, ends)
    move = _earliest(frame, least, True, move, effort)
    end = min(move.until, move.finish())  # what it was asked for may be later
    move = _with_fewer_leaves(move, min(aim, end + _part(end, problem.margin // 2)), effort)
    ends = filled.finish()
    if not move.leaves:
        move = _filled(move)
    move.lend(move.finish())
    return _plan(move, ends)


def _part(us: int, millionths: int) -> int:
    return us * millionths // UNIT


def _filled(draft: Draft) -> Draft:
    draft.fill(True)
    draft.fill(False)
    return draft


def _as_many_as_fit(frame: Frame, may_leave: bool, effort: Effort) -> tuple[list[int], Draft | None]:
    """One worker a step, and of fixed numbers as much as fits, all in the same proportion; None if not even one."""

    def part(of_1024: int) -> list[int]:
        least = []
        for load, have in zip(frame.loads, frame.have, strict=True):
            n = max(1, min(load.spec.workers or 1, load.most) * of_1024 // 1024)
            least.append(n if may_leave or load.spec.workers is None else max(n, have))
        return least

    def tried(of_1024: int) -> Draft | None:
        least = part(of_1024)
        if not frame.could(AT_LAST, least, may_leave):
            return None
        draft = _try(frame, AT_LAST, least, may_leave)
        if draft is None and may_leave:
            draft = repacked(frame, least)
        return draft or _search(frame, AT_LAST, least, may_leave, effort)

    draft = tried(1024)
    if draft is not None or all(load.spec.workers is None for load in frame.loads):
        return part(1024), draft
    low, high = 0, 1024
    draft = tried(0)
    while draft is not None and low < high - 1:
        middle = (low + high) // 2
        better = tried(middle) if part(middle) != part(low) else draft
        if better is None:
            high = middle
        else:
            low, draft = middle, better
    return part(low), draft


def _try(frame: Frame, until: int, least: Sequence[int], may_leave: bool) -> Draft | None:
    """A draft by one of the straight ways."""
    return next((x for way in frame.ways if (x := _by(way, frame, until, least, may_leave)) is not None), None)


def _by(way: Way, frame: Frame, until: int, least: Sequence[int], may_leave: bool) -> Draft | None:
    draft = Draft(frame, until, least, may_leave)
    return draft if draft.build(way) else None


def _search(
    frame: Frame, until: int, least: Sequence[int], may_leave: bool, effort: Effort, limit: int = 1 << 30
) -> Draft | None:
    """A draft by all ways there are, as far as the effort goes."""
    if effort.left <= 0 or len(frame.kinds) * len(frame.loads) > _DEEPEST:
        return None
    return Search(frame, until, least, may_leave, effort).run(limit)


def _earliest(frame: Frame, least: list[int], may_leave: bool, best: Draft, effort: Effort) -> Draft:
    """The draft that ends soonest, if ``best`` is one that can be done."""
    high = min(best.until, best.finish())
    bound = frame.bound(least, may_leave, high)
    for n, way in enumerate(frame.ways):
        low, stride = bound, max(1, bound >> _GRAIN)
        sooner = high - max(1, high >> _GRAIN)
        while high - low > max(1, low >> _GRAIN):
            # Near the bound first, in longer and longer strides; another way only if it is better at all.
            middle = sooner if n and low == bound else min(low + stride, (low + high) // 2)
            tried = _by(way, frame, middle, least, may_leave)
            if tried is not None:
                best, high, stride = tried, min(middle, tried.finish()), FOREVER
                low += low == bound
            elif middle == sooner:
                break
            else:
                low, stride = middle, stride * 2
    low = bound
    while effort.left > 0 and high - low > max(1, low >> _GRAIN):
        middle = (low + high) // 2
        tried = _search(frame, middle, least, may_leave, effort)
        if tried is None:
            low = middle
        else:
            best, high = tried, min(middle, tried.finish())
    return best


def _with_fewer_leaves(best: Draft, until: int, effort: Effort) -> Draft:
    """Another draft that ends about as soon, if fewer leave for it."""
    calm = _try(best.frame, until, best.least, True)
    if calm is not None and calm.n_leaves < best.n_leaves:
        best = calm
    while best.n_leaves and effort.left > 0:
        calm = _search(best.frame, until, best.least, True, effort, best.n_leaves - 1)
        if calm is None:
            break
        best = calm
    return best


def _plan(draft: Draft, stay_us: int) -> Plan:
    frame = draft.frame
    steps = [load.step for load in frame.loads]
    starts: list[tuple[int, int, Placement]] = []
    later: list[tuple[int, int, Placement]] = []
    for i, nodes, placements, _, now in draft.starts:
        (starts if now else later).extend(product((steps[i],), nodes, placements))
    return Plan(
        dict(zip(steps, draft.count, strict=True)),
        starts,
        later,
        _leavers(draft),
        draft.finish(),
        stay_us,
        {step: crew.finish() for step, crew in zip(steps, draft.crews(), strict=True)},
    )


def _leavers(draft: Draft) -> list[int]:
    """The workers who leave: of those who are interchangeable the one that is missed least."""
    wanted: dict[tuple[int, int, int, tuple[int, ...]], int] = {}
    for code, nodes in draft.leaves:
        seat = draft.frame.seats[code]
        for node in nodes:
            key = (seat.load, node, seat.delay_us, seat.placement.gpus)
            wanted[key] = wanted.get(key, 0) + 1
    leavers = []
    for i in dict.fromkeys(key[0] for key in wanted):
        for hand in reversed(draft.frame.loads[i].hands):
            key = (i, hand.node, hand.delay_us, hand.placement.gpus)
            if wanted.get(key):
                wanted[key] -= 1
                leavers.append(hand.worker)
    return leavers
