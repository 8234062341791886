"""A schedule of plans played with tasks as a fluid: setups, fill and drain are paid."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bound.job import Job
from gristmill.scheduling.simulator.optimum import EPS, Staffing, Stage

_Curve = list[tuple[float, float]]
"""Tasks by time, cumulative and piecewise linear; two points at one time are a jump."""


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of a schedule: plans, each with the time from which it holds."""

    plans: tuple[tuple[float, Staffing], ...]
    ends: tuple[float, ...]
    worked: tuple[_Curve, ...]
    readies: tuple[float, ...]
    """When the workers of the last plan are ready on average, by stage."""

    @property
    def finish(self) -> float:
        return max(self.ends)

    @property
    def score(self) -> float:
        """The finish; of equals, the one whose stages end early leaves more capacity for what comes."""
        return self.finish + 1e-4 * sum(self.ends) / len(self.ends)

    def rank(self, stages: Sequence[int]) -> tuple[int, float]:
        """The score by these stages alone; those that never end count most."""
        ends = [self.ends[i] for i in stages if math.isfinite(self.ends[i])]
        return len(stages) - len(ends), max(ends) + 1e-4 * sum(ends) / len(ends) if ends else 0.0


def play(job: Job, plans: tuple[tuple[float, Staffing], ...]) -> Run:
    arrivals: _Curve = [(0.0, job.stages[0].tasks)]
    ends, worked, readies = [], [], []
    for i, stage in enumerate(job.stages):
        steps, ready = _staffing(stage, i, plans)
        out, work = _serve(stage, arrivals, steps)
        job.effort += 1
        readies.append(ready)
        worked.append(work)
        ends.append(out[-1][0])
        if math.isinf(ends[-1]):
            rest = len(job.stages) - len(ends)
            return Run(plans, (*ends, *[math.inf] * rest), (*worked, *[[(0.0, 0.0)]] * rest), (*readies, *[0.0] * rest))
        arrivals = [(t, y * stage.outputs) for t, y in out]
    return Run(plans, tuple(ends), tuple(worked), tuple(readies))


def _staffing(
    stage: Stage, i: int, plans: Sequence[tuple[float, Staffing]]
) -> tuple[list[tuple[float, float, int]], float]:
    """From when on which speed and how many workers are ready; and when those at the end are ready on average."""
    moves: list[tuple[float, float, int]] = []
    heads, readies = 0, 0.0
    for k, speed in enumerate(stage.speeds):
        groups: list[tuple[float, int]] = []
        have = 0
        for at, plan in plans:
            more = plan[i][k] - have
            have = plan[i][k]
            if more > 0:
                groups.append((at + stage.setup_s, more))
            while more < 0:
                ready, n = groups.pop()
                gone = min(n, -more)
                if ready < at:
                    moves += [(ready, gone * speed, gone), (at, -gone * speed, -gone)]
                if n > gone:
                    groups.append((ready, n - gone))
                more += gone
        moves += [(ready, n * speed, n) for ready, n in groups]
        heads += have
        readies += sum(ready * n for ready, n in groups)
    steps, total, n = [(0.0, 0.0, 0)], 0.0, 0
    for at, speed, count in sorted(moves):
        total, n = total + speed, n + count
        if steps[-1][0] == at:
            steps.pop()
        steps.append((at, total if n else 0.0, n))
    return steps, readies / heads if heads else 0.0


def _serve(stage: Stage, arrivals: _Curve, steps: list[tuple[float, float, int]]) -> tuple[_Curve, _Curve]:
    """The output of a stage, and how much it has worked, both in tasks.

    Work flows at the speed of the workers while there is some. A task is started as soon as it is there and a worker is
    free, so starts are ahead of the work by one task for each worker, and every output follows its
    start by a service time.
    """
    goal, paces = stage.tasks, stage.paces
    eps = 1e-9 * goal
    out: _Curve = [(0.0, 0.0)]
    worked: _Curve = [(0.0, 0.0)]
    t = done = 0.0
    arrival_times, step_times, pace_starts = [x[0] for x in arrivals], [x[0] for x in steps], [x[0] for x in paces]
    step_times.append(math.inf)
    last_arrival, last_pace = len(arrivals), len(paces) - 1
    while True:
        coming = bisect_right(arrival_times, t + EPS)
        step = max(0, bisect_right(step_times, t + EPS) - 1)
        pace = max(0, bisect_right(pace_starts, done + eps) - 1)
        arrived = slope = 0.0
        then = arrivals[coming][0] if coming < last_arrival else math.inf
        if coming:
            since, arrived = arrivals[coming - 1]
            if coming < last_arrival:
                slope = (arrivals[coming][1] - arrived) / (then - since)
                arrived += slope * (t - since)
        _, speed, n = steps[step]
        mean = paces[pace][1]
        takes = mean * n / speed if n else 0.0
        started = min(arrived, done + n)
        x, y = out[-1]
        if n:
            x = max(x, t + takes)
            out.append((x, y))
            if started > y:
                out.append((x, started))
        if started >= goal - eps:
            out[-1] = (out[-1][0], goal)
            worked.append((max(t, out[-1][0]), goal))
            return out, worked
        limit = speed / mean
        backlog = arrived - done > eps
        rate = limit if backlog else min(limit, slope)
        then = min(then, step_times[step + 1])
        if rate > 0:
            if pace < last_pace:
                then = min(then, t + (paces[pace + 1][0] - done) / rate)
            if arrived >= goal - eps:
                then = min(then, t + max(0.0, goal - n - done) / rate)
        if backlog and limit > slope:
            then = min(then, t + (arrived - done) / (limit - slope))
        if math.isinf(then):
            out.append((math.inf, goal))
            return out, worked
        then = max(then, t + EPS)
        arrived_then = arrived + slope * (then - t)
        done_then = min(arrived_then, done + rate * (then - t))
        if n:
            y = out[-1][1]
            ahead, ahead_then = arrived - done - n, arrived_then - done_then - n
            if ahead * ahead_then < 0:
                part = ahead / (ahead - ahead_then)
                cross = min(done + n + part * (done_then - done), goal)
                if cross > y:
                    out.append((max(x, t + part * (then - t) + takes), cross))
            started = min(arrived_then, done_then + n)
            out.append((max(out[-1][0], then + takes), max(out[-1][1], started)))
        t, done = then, done_then
        worked.append((t, done))


def value_at(curve: _Curve, t: float) -> float:
    at = bisect_left(curve, (t, math.inf))
    if at == len(curve):
        return curve[-1][1]
    (t0, y0), (t1, y1) = curve[max(0, at - 1)], curve[at]
    return y0 if t1 <= t0 else y0 + (y1 - y0) * max(0.0, t - t0) / (t1 - t0)


def time_of(curve: _Curve, y: float) -> float:
    for (t0, y0), (t1, y1) in pairwise(curve):
        if y0 < y <= y1:
            return t0 + (t1 - t0) * (y - y0) / (y1 - y0)
    return math.inf
