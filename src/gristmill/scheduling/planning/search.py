"""The last word on few nodes: a search through all ways to place workers, with a bound on its effort.

Steps get their places one after the other. What a step can do on one node (whom it keeps there, how many it adds, on
which GPUs) is a list of options; the search goes through the nodes, and remembers what has led nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gristmill.scheduling.placement import Capacity, Placement, gpu_share
from gristmill.scheduling.planning.draft import Draft
from gristmill.scheduling.planning.frame import Frame
from gristmill.scheduling.planning.packing import Group, less
from gristmill.scheduling.settings import UNIT

_Here = tuple[tuple[int, int, int, int, int], ...]
"""Who is on a GPU: load, delay, share, seat if on other GPUs too, number."""


class _Space(NamedTuple):
    """What is free on a node."""

    cpu: int
    memory: int
    gpus: tuple[int, ...]

    def less(self, p: Placement) -> _Space | None:
        if p.cpu > self.cpu or p.memory > self.memory:
            return None
        if not p.gpus:
            return _Space(self.cpu - p.cpu, self.memory - p.memory, self.gpus)
        gpus = list(self.gpus)
        for i in p.gpus:
            gpus[i] -= p.gpu_share
            if gpus[i] < 0:
                return None
        return _Space(self.cpu - p.cpu, self.memory - p.memory, tuple(gpus))


class _State(NamedTuple):
    """A node in the search: what is free if nobody else stays, and what is free now."""

    then: _Space
    now: _Space


class _Option(NamedTuple):
    """What a step can do on a node."""

    leaves: int
    gain: int
    least_new: int
    """What the new worker that does least gets done; 0 if there is none."""
    workers: int
    state: _State
    gone: tuple[int, ...]
    starts: tuple[tuple[Placement, bool], ...]


@dataclass(slots=True)
class Effort:
    """How much searching is still allowed; the same on every machine."""

    left: int


_MOST_KEPT = 1 << 14
"""Sets of workers of one step on one node that are tried."""


class _GivenUpError(Exception):
    pass


class Search:
    """One search: all done at ``until``, with at most so many workers who leave."""

    def __init__(self, frame: Frame, until: int, least: Sequence[int], may_leave: bool, effort: Effort) -> None:
        self._frame = frame
        self._until = until
        self._least = least
        self._may_leave = may_leave
        self._effort = effort
        self._order = frame.ways[0][0]
        self._sites = [(k, g, node) for k, g in enumerate(frame.groups) for node in g.nodes]
        self._options: dict[tuple[int, int, _State], list[_Option]] = {}
        self._here: dict[tuple[int, int], _Here] = {}
        self._failed: dict[tuple[object, ...], int] = {}
        self._chosen: list[list[_Option | None]] = [[None] * len(self._sites) for _ in frame.loads]
        self._index = [[0] * len(self._sites) for _ in frame.loads]
        """Which option that was. Nodes that are equal take theirs in order."""
        self._rest = self._needs()

    def run(self, limit: int) -> Draft | None:
        """The first plan found; None if there is none, or none was found with the effort that is left."""
        states = []
        for _, g, _ in self._sites:
            now = _Space(g.room.cpu, g.room.memory, tuple(g.room.gpu_free))
            room = g.room.copy()
            for code, n in g.hands:
                for _ in range(n):
                    room.give(self._frame.seats[code].placement)
            states.append(_State(_Space(room.cpu, room.memory, tuple(room.gpu_free)), now))
        self._failed.clear()
        try:
            return self._draft(states) if self._step(0, states, limit) else None
        except _GivenUpError:
            return None

    def _needs(self) -> list[tuple[int, int, int]]:
        """CPU, memory and GPU that the steps from each one on need at least, and shared steps after them."""
        frame = self._frame
        shared = frame.problem.shared
        cpu = -(-shared.work // max(self._until, 1)) if shared.floor * self._until < shared.work else 0
        rest = [(cpu, 0, 0)]
        for i in reversed(self._order):
            n = max(0, frame.fewest(i, self._until, self._least[i], self._may_leave))
            spec = frame.loads[i].spec
            rest.append((rest[-1][0] + n * spec.cpu, rest[-1][1] + n * spec.memory, rest[-1][2] + n * frame.shares[i]))
        return rest[::-1]

    def _step(self, at: int, states: list[_State], limit: int) -> bool:
        """Place the steps from here on."""
        cpu, memory, gpu = self._rest[at]
        if (
            sum(s.then.cpu for s in states) < cpu
            or sum(s.then.memory for s in states) < memory
            or sum(sum(s.then.gpus) for s in states) < gpu
        ):
            return False
        if at == len(self._order):
            return True
        key = (at, *sorted((self._sites[k][0], s) for k, s in enumerate(states)))
        if self._failed.get(key, -1) >= limit:
            return False
        i = self._order[at]
        options = [self._options_of(k, i, s) for k, s in enumerate(states)]
        reach = [0] * (len(states) + 1)
        for k in reversed(range(len(states))):
            reach[k] = reach[k + 1] + max((o.gain for o in options[k]), default=0)
        if self._node(at, 0, self._frame.loads[i].tasks, 0, states, options, reach, limit):
            return True
        self._failed[key] = max(limit, self._failed.get(key, -1))
        return False

    def _node(
        self,
        at: int,
        k: int,
        short: int,
        count: int,
        states: list[_State],
        options: list[list[_Option]],
        reach: list[int],
        limit: int,
    ) -> bool:
        """Choose what a step does on the nodes from this one on."""
        self._effort.left -= 1
        if self._effort.left < 0:
            raise _GivenUpError
        i = self._order[at]
        if short > reach[k]:
            return False
        if k == len(states):
            return count >= self._least[i] and self._step(at + 1, states, limit)
        before = states[k]
        first = self._index[at][k - 1] if k and options[k] is options[k - 1] else 0
        for index in range(first, len(options[k])):
            option = options[k][index]
            if option.leaves > limit or count + option.workers > self._frame.cap[i]:
                continue
            enough = short - option.gain + option.least_new <= 0 and count + option.workers > self._least[i]
            if option.starts and enough:
                continue
            states[k] = option.state
            self._chosen[at][k] = option
            self._index[at][k] = index
            if self._node(
                at, k + 1, short - option.gain, count + option.workers, states, options, reach, limit - option.leaves
            ):
                return True
        states[k] = before
        return False

    def _options_of(self, k: int, i: int, state: _State) -> list[_Option]:
        key = (self._sites[k][0], i, state)
        found = self._options.get(key)
        if found is None:
            found = [o for kept in self._try_start(k, i, state) for o in self._with_new(k, i, kept)]
            found.sort(key=lambda o: (o.leaves, -o.gain, o.workers))
            self._options[key] = found
            self._effort.left -= len(found) >> 2
        return found

    def _try_start(self, k: int, i: int, state: _State) -> list[_Option]:
        """Whom to keep. Of those who are as good as each other the first."""
        g = self._sites[k][1]
        options = [_Option(0, 0, 0, 0, state, (), ())]
        alike: dict[int, tuple[object, ...]] = {}
        for code, n in g.hands:
            seat = self._frame.seats[code]
            if seat.load != i:
                continue
            alike[code] = (seat.delay_us, *sorted(self._alike(k, gpu, state) for gpu in seat.placement.gpus))
            gain = max(0, self._until - seat.delay_us) * UNIT // self._frame.loads[i].service_us[g.kind]
            for _ in range(n):
                after = []
                for o in options:
                    then = o.state.then.less(seat.placement)
                    if then is not None and all(alike[c] != alike[code] for c in o.gone):
                        kept = o._replace(gain=o.gain + gain, workers=o.workers + 1, state=_State(then, o.state.now))
                        after.append(kept)
                    if self._may_leave:
                        after.append(o._replace(leaves=o.leaves + 1, gone=(*o.gone, code)))
                options = after
                if len(options) > _MOST_KEPT:  # they double with each worker that is like no other
                    raise _GivenUpError
        return options

    def _alike(self, k: int, gpu: int, state: _State) -> tuple[int, int, int, _Here]:
        """Equal for GPUs of a node that can be exchanged: what is free there, and who was there."""
        group, g, _ = self._sites[k]
        here = self._here.get((group, gpu))
        if here is None:
            who = []
            for code, n in g.hands:
                load, placement, delay = self._frame.seats[code]
                if gpu in placement.gpus:
                    alone = len(placement.gpus) == 1
                    who.append((load, delay, placement.gpu_share, -1 if alone else code, n))
            here = self._here[group, gpu] = tuple(sorted(who))
        return state.then.gpus[gpu], state.now.gpus[gpu], g.room.gpu_memory[gpu], here

    def _with_new(self, k: int, i: int, kept: _Option) -> list[_Option]:
        """How many to add, and on which GPUs."""
        frame = self._frame
        g = self._sites[k][1]
        waits = [(True, 0)]
        if g.hands and self._may_leave:
            waits.append((False, frame.problem.leave_us))
        gains = [(now, frame.gain(i, g.kind, self._until, wait)) for now, wait in waits]
        most = frame.cap[i] - kept.workers
        options = [kept]
        level = {kept.state: kept}
        tasks = frame.loads[i].tasks
        while level and most > 0:
            most -= 1
            following: dict[_State, _Option] = {}
            for o in level.values():
                for p in self._places(k, i, o.state):
                    then = o.state.then.less(p)
                    assert then is not None, "the place has just been found"
                    for now, gain in gains:
                        left = o.state.now.less(p) if now else o.state.now
                        if left is None or (not gain and o.workers >= self._least[i]):
                            continue
                        state = _State(then, left)
                        old = following.get(state)
                        if old is None or old.gain < o.gain + gain:
                            least = min(gain, o.least_new) if o.starts else gain
                            following[state] = _Option(
                                o.leaves, o.gain + gain, least, o.workers + 1, state, o.gone, (*o.starts, (p, now))
                            )
                        if now and not frame.problem.leave_us:
                            break
            options.extend(following.values())
            self._effort.left -= 1 + len(following)
            if self._effort.left < 0:
                raise _GivenUpError
            level = {s: o for s, o in following.items() if o.gain < tasks or o.workers < self._least[i]}
        return options

    def _places(self, k: int, i: int, state: _State) -> list[Placement]:
        """The different places for a worker; GPUs that are equal in all that matters count once."""
        spec = self._frame.loads[i].spec
        space = state.then
        if spec.cpu > space.cpu or spec.memory > space.memory or self._sites[k][1].closed >> i & 1:
            return []
        if not spec.uses_gpu:
            return [Placement(spec.cpu, spec.memory)]
        g = self._sites[k][1]
        distinct: dict[tuple[int, tuple[int, int, int, _Here]], list[int]] = {}
        for gpu, free in enumerate(space.gpus):
            share = UNIT if spec.gpu > UNIT else gpu_share(spec, g.room.gpu_memory[gpu])
            if free >= share:
                distinct.setdefault((share, self._alike(k, gpu, state)), []).append(gpu)
        if spec.gpu <= UNIT:
            return [Placement(spec.cpu, spec.memory, (gpus[0],), key[0]) for key, gpus in distinct.items()]
        return [
            Placement(spec.cpu, spec.memory, gpus, UNIT)
            for gpus in _choices(list(distinct.values()), -(-spec.gpu // UNIT))
        ]

    def _draft(self, states: list[_State]) -> Draft:
        draft = Draft(self._frame, self._until, self._least, self._may_leave)
        gone: list[list[int]] = [[] for _ in states]
        for at, i in enumerate(self._order):
            for k, option in enumerate(self._chosen[at]):
                assert option is not None, "a step has been placed on every node"
                _, g, node = self._sites[k]
                draft.count[i] += len(option.starts) - len(option.gone)
                for placement, now in option.starts:
                    draft.starts.append((i, (node,), [placement], g.kind, now))
                for code in option.gone:
                    draft.leaves.append((code, (node,)))
                    gone[k].append(code)
        draft.groups = []
        for (_, g, node), state, left in zip(self._sites, states, gone, strict=True):
            room = Capacity(state.then.cpu, state.then.memory, g.room.gpu_memory, state.then.gpus)
            hands = g.hands
            for code in left:
                hands = less(hands, code)
            draft.groups.append(Group(g.kind, (node,), room, hands, g.uses, bool(left), g.closed))
        draft.cpu_left = sum(g.room.cpu for g in draft.groups)
        return draft


def _choices(equal: list[list[int]], n: int) -> list[tuple[int, ...]]:
    """All ways to take so many GPUs, where those that are equal count once."""
    if n == 0:
        return [()]
    if not equal:
        return []
    first, rest = equal[0], equal[1:]
    return [(*first[:k], *others) for k in range(min(n, len(first)) + 1) for others in _choices(rest, n - k)]
