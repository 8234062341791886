"""Describe what the balancer did, and why."""

from __future__ import annotations

from gristmill.scheduling.planning import FOREVER, Problem, StaffingPlan, StepDemand
from gristmill.scheduling.records import StepRec, WorkerState
from gristmill.scheduling.settings import UNIT
from gristmill.scheduling.state import State


def explain(
    s: State,
    problem: Problem,
    plan: StaffingPlan,
    have: dict[int, int],
    grown: dict[int, int],
    coming: dict[int, int],
    taken: dict[int, int],
) -> None:
    """Add a decision for each change, with its reason."""
    demands = {demand.step: demand for demand in problem.demands}
    names = {i: demand.spec.name for i, demand in demands.items()}
    givers = ", ".join(f"{names[i]} ({n} of {have[i]}{_idle(s, s.steps[i])})" for i, n in taken.items())
    for i in demands:
        more = grown.get(i, 0)
        short = coming.get(i, 0)
        if short:
            source = f"taken from {givers}" if givers else "in places that others are leaving"
            s.decide(f"{names[i]}: +{short} workers, {_why(s, demands[i], have[i], plan)}; {source}")
        if more:
            s.decide(f"{names[i]}: {have[i]} to {have[i] + more} workers; {_why(s, demands[i], have[i], plan)}")
    if taken and not any(plan.counts.get(i, 0) > have[i] for i in demands):
        s.decide(
            f"shared steps: more CPUs, {_time(plan.finish_us)} to the end instead of {_time(plan.stay_us)}; "
            f"taken from {givers}"
        )


def _why(s: State, demand: StepDemand, have: int, plan: StaffingPlan) -> str:
    step = s.steps[demand.step]
    if not have:
        return "it has none" if step.service.is_known else "free capacity, speed not yet known"
    if not step.service.is_known:
        return "free capacity, speed not yet known"
    service = max(1, min(demand.service_us.values()))
    can = have * UNIT / service
    needs = demand.tasks / UNIT / max(plan.finish_us / UNIT, 1e-6)
    if can < needs:
        return f"bottleneck at {can:.3g}/s against {needs:.3g}/s demand"
    return f"free capacity, to run ahead of {needs:.3g}/s demand"


def _idle(s: State, step: StepRec) -> str:
    ready = step.available_us + sum(s.now - w.ready_at for w in step.workers.values() if w.state is WorkerState.READY)
    return f", idle {max(0, 100 - 100 * step.times.busy_us // ready)} %" if ready > 0 else ""


def _time(us: int) -> str:
    return f"{us / 1e6:.0f} s" if us < FOREVER else "never"
