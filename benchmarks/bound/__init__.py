"""How short a load's makespan could be, so that a scheduler's makespan can be judged.

Besides `ideal_s` of `gristmill.scheduling.simulator.optimum` (all inputs at the best steady throughput; filling, setups
and the drain cost nothing):

- :func:`limit_s`: no schedule takes less, because some resource or some stage would need more time than there is.
- :func:`bound_s`: the shortest makespan that a planner who knows the mean times finds in a fluid model, in which
  setups, filling and the drain are paid and plans may change. :func:`steady_bound_s` keeps one plan to the end.

All take service times and outputs at their means and queues as unlimited; ``batch_size`` and ``shared_cpu`` are
ignored.
"""

from __future__ import annotations

import math

from bound.fluid import Run, play
from bound.job import Job, work_left
from bound.limits import may_last
from bound.search import best_schedule, steady_plan
from bound.tails import longest_rest_s
from gristmill.scheduling.simulator.loads import Load
from gristmill.scheduling.simulator.optimum import smallest


def limit_s(load: Load) -> float:
    """A makespan that no schedule undercuts, with any plans and queues; service times are taken at their means.

    A stage works between the first arrival there can be and the end less the later stages' service times, with no more
    workers than the nodes hold, and each resource must be there for all work and setups of the stages that share it.
    Luck with service times can undercut it in runs of few tasks.
    """
    job = Job.of(load)
    if not all(stage.capacity for stage in job.stages):
        return math.inf
    low = high = job.last_arrival
    while not may_last(job, high):
        low, high = high, 2 * high + 1
    return smallest(lambda end: may_last(job, end), low, high, 1e-7)


def steady_bound_s(load: Load) -> float:
    """The shortest makespan of one plan that is kept to the end; infinite if not all stages fit beside one another."""
    job = Job.of(load)
    plan = steady_plan(job)
    return _without_noise(_drained(job, play(job, ((0.0, plan),))), limit_s(load)) if plan else math.inf


def bound_s(load: Load) -> float:
    """The shortest makespan found for a planner who knows the mean times and may change the plan during the run.

    Setups, fill and drain are paid; the drain is that of tasks whose times differ, since which are long is not known.

    Plans change when a stage ends or its mean changes. A search finds the plans, so a better schedule may exist, but
    never below :func:`limit_s`. Workers that stay may be packed again on nodes of their kind when a plan changes.
    """
    job = Job.of(load)
    floor = limit_s(load)
    if math.isinf(floor):
        return math.inf
    return _without_noise(_drained(job, best_schedule(job, floor)), floor)


def _drained(job: Job, run: Run) -> float:
    """Return when a schedule ends: the last tasks of a stage are not all average, and which are not is unknown."""
    finish = run.finish
    if math.isinf(finish):
        return finish
    for i, stage in enumerate(job.stages):
        first = max(job.arrivals[i], stage.setup_s)
        mean = stage.mean_at(stage.tasks) / max(stage.speeds)
        under_way = max(1, math.ceil(work_left(stage) / max(stage.speeds) / max(run.ends[i] - first, mean)))
        rest = mean * (1 + stage.cv * stage.cv) / 2
        late = longest_rest_s(mean, stage.cv, under_way) - max(mean, rest)
        finish = max(finish, run.ends[i] + late + job.drains[i])
    return finish


def _without_noise(finish: float, floor: float) -> float:
    # More than rounding below the limit would be a mistake in one of the two, and is left to be seen.
    return floor if floor * (1 - 1e-6) < finish < floor else finish
