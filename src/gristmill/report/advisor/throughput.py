"""Rules about what limited the speed of a run."""

from __future__ import annotations

from collections.abc import Iterator

from gristmill.report.advisor.finding import ADVICE, LEAST_S, NOTE, Advice, percent, seconds
from gristmill.report.place import Data
from gristmill.report.steps import RunStep, steps_of

BUSY = 0.8
"""From this share on workers are busy all the time, but for the start and the end of the run."""
MOST_OF = 0.5
STARVED = 0.3
SHORT_S = 0.002
"""The engine needs about 0.1 ms for a task: below this time it is more than 5 % of the work."""
MOSTLY_SHORT_S = 0.02
"""Below this time tasks are too short if workers are idle for more than half of the time."""
MANY_TASKS = 1_000
IDLE_PERCENT = 50


def bottleneck(data: Data) -> Iterator[Advice]:
    """The step that workers spent most of their time in, and what would help."""
    steps = [step for step in steps_of(data) if step.busy_s]
    whole = sum(step.busy_s for step in steps)
    wall = sum(float(plan.get("wall_s") or 0) for plan in data.get("plans") or ())
    if not steps or wall < LEAST_S:
        return
    step = max(steps, key=lambda one: one.busy_s)
    if step.busy_share is not None and step.busy_share < MOST_OF and not _limits(data, step):
        return
    figure = f"{percent(step.busy_s / whole)} of the {seconds(whole)} of work of all workers"
    if step.busy_share is not None:
        figure += f"; its workers were busy for {percent(step.busy_share)} of the time"
    stage, share = _slowest_stage(step)
    where = f"{step.name!r}" if len(step.stages) < 2 or not stage else f"{stage!r}"
    if len(step.stages) > 1 and stage:
        figure += f"; of its {len(step.stages)} fused stages {stage!r} took {percent(share)}"
    if step.needs_gpu:
        change = f"Add GPUs, or make {where} faster: a larger batch_size, a smaller model, or bf16."
    else:
        change = f"Add CPUs: each one more shortens the run nearly in proportion. Or make {where} faster."
    yield Advice("bottleneck", NOTE, f"{where} takes most of the time", figure, change)


def _limits(data: Data, step: RunStep) -> bool:
    """Return whether the scheduler saw the step as the bottleneck for most of the time of its plan."""
    seen = data["plans"][step.plan].get("series", {}).get("bottleneck") or []
    return bool(seen) and seen.count(step.number) > len(seen) * MOST_OF


def _slowest_stage(step: RunStep) -> tuple[str, float]:
    times = {str(stage.get("name")): float(stage.get("busy_s") or 0) for stage in step.accounts}
    whole = sum(times.values())
    if not whole:
        return "", 0.0
    name = max(times, key=lambda one: times[one])
    return name, times[name] / whole


def gpu_starved(data: Data) -> Iterator[Advice]:
    """A step on GPUs that waits for input, and the step before it that is too slow."""
    steps = steps_of(data)
    for step in steps:
        if not step.needs_gpu or step.wall_s < LEAST_S or step.waiting_share < STARVED:
            continue
        before = [one for one in steps if one.plan == step.plan and one.number < step.number]
        if not before:
            continue
        slow = max(before, key=lambda one: (one.busy_share or 0.0, one.busy_s))
        figure = f"{step.name!r} had no input for {percent(step.waiting_share)} of the {seconds(step.wall_s)}"
        if slow.busy_share is not None:
            figure += f", while the workers of {slow.name!r} were busy for {percent(slow.busy_share)} of the time"
        yield Advice(
            "gpu_starved",
            ADVICE,
            f"the GPU stage {step.name!r} is starved by {slow.name!r}",
            figure,
            f"Add CPUs for {slow.name!r} or make it faster. A GPU stage can share a GPU with others: gpus=0.5.",
        )


def gpu_idle(data: Data) -> Iterator[Advice]:
    """A GPU that computes little although its step has work."""
    steps = steps_of(data)
    for number, plan in enumerate(data.get("plans") or ()):
        for position, gpu in enumerate(plan.get("gpus") or ()):
            users = [one for one in steps if one.plan == number and one.number in gpu.get("steps", ())]
            busy = [row[position] for row in plan["series"]["gpu_busy_percent"] if position < len(row)]
            if not users or not busy or users[0].wall_s < LEAST_S:
                continue
            mean = sum(busy) / len(busy)
            if mean >= IDLE_PERCENT or min(one.waiting_share for one in users) >= STARVED:
                continue  # it computes, or `gpu_starved` names the cause
            batch = users[0].asks.get("batch_size", 1)
            yield Advice(
                "gpu_idle",
                ADVICE,
                f"GPU {gpu['index']} computes little while {users[0].name!r} has work",
                f"it was busy for {mean:.0f} % of the time, with batch_size={batch}",
                f"Raise the batch_size of {users[0].name!r} or of its model, or let workers share the GPU: gpus=0.5.",
            )


def small_batches(data: Data) -> Iterator[Advice]:
    """Many tasks so short that sending them costs more than their work."""
    steps = steps_of(data)
    for plan in sorted({step.plan for step in steps}):
        of_plan = [one for one in steps if one.plan == plan and int(one.asks.get("tasks_done") or 0) >= MANY_TASKS]
        if not of_plan or of_plan[0].wall_s < LEAST_S:
            continue
        step = min(of_plan, key=_mean_s)
        each, busy = _mean_s(step), sum(one.busy_share or 0.0 for one in of_plan if not one.asks.get("dedicated"))
        if each >= SHORT_S and (each >= MOSTLY_SHORT_S or busy >= MOST_OF):
            continue
        batch = int(step.asks.get("batch_size") or 1)
        larger = max(10, round(0.05 / max(each, 1e-6) / 10) * 10)
        yield Advice(
            "small_batches",
            ADVICE,
            f"the tasks of {step.name!r} are very short",
            f"{int(step.asks['tasks_done']):,} tasks of {seconds(each)} each, with batch_size={batch}; workers were "
            f"busy for {percent(busy)} of the time",
            f"Put more documents into a task: a larger blocksize of the reader. Or set batch_size={larger}.",
        )


def _mean_s(step: RunStep) -> float:
    return step.busy_s / int(step.asks["tasks_done"])


def setup_dominates(data: Data) -> Iterator[Advice]:
    """A run that spent most of its time before the first document came out."""
    wall, first = float(data.get("wall_s") or 0), data.get("first_output_s")
    if first is None or wall < LEAST_S or len(data.get("plans") or ()) > 1:
        return
    loaded = float(data.get("loaded_s") or 0)
    share = float(first) / wall
    done = max((int(step.asks.get("tasks_done") or 0) for step in steps_of(data)), default=0)
    if share < MOST_OF or done < 2:  # a single task is the whole run
        return
    yield Advice(
        "setup_dominates",
        ADVICE,
        "starting took longer than the work",
        f"the first output came after {seconds(float(first))} of {seconds(wall)}; stages were loaded after "
        f"{seconds(loaded)}",
        "Process more input in one run. Move work out of setup() and out of imports, or cache what setup() makes.",
    )
