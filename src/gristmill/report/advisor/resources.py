"""Rules about workers, memory, storage and the shape of the input."""

from __future__ import annotations

from collections.abc import Iterator

from gristmill.metrics.format import size
from gristmill.report.advisor.finding import ADVICE, LEAST_S, NOTE, PROBLEM, Advice, percent, seconds
from gristmill.report.advisor.throughput import BUSY
from gristmill.report.place import Data
from gristmill.report.steps import RunStep, steps_of

NEAR = 0.9
COMPUTES = 0.5
BLOCKED = 0.3
LONG_TASK = 0.25
OUT_OF_MEMORY = "out of memory"


def workers_died(data: Data) -> Iterator[Advice]:
    """Workers that were killed or crashed."""
    steps, plans = steps_of(data), data.get("plans") or ()
    seen = [*(step.asks.get("deaths") for step in steps), *(plan.get("shared_deaths") for plan in plans)]
    deaths = int(data.get("worker_deaths") or sum(int(n or 0) for n in seen))
    if not deaths:
        return
    began = [*(step.asks.get("started") for step in steps), *(plan.get("shared_started") for plan in plans)]
    started = sum(int(n or 0) for n in began)
    errors = [str(failure.get("error", "")) for failure in data.get("failures") or ()]
    memory = any(OUT_OF_MEMORY in error.lower() for error in errors)
    change = (
        "Raise --memory-limit, lower the blocksize of the reader, or ask for more memory: Resources(memory_gb=...)."
        if memory
        else "Look at the failures below. A crash of native code or a lack of memory leaves no exception."
    )
    workers = "worker" if deaths == 1 else "workers"
    of = f" of {started:,} started" if started else ""
    yield Advice("workers_died", PROBLEM, f"{deaths:,} {workers} died", f"{deaths:,} {workers}{of}", change)


def memory_near_limit(data: Data) -> Iterator[Advice]:
    """A run that came close to its memory limit."""
    limits = [int(plan.get("memory_limit") or 0) for plan in data.get("plans") or ()]
    limit = max(limits, default=0) or int((data.get("machine") or {}).get("memory_bytes") or 0)
    peak = int(data.get("peak_memory_bytes") or 0)
    if not limit or peak < limit * NEAR:
        return
    steps = [step for step in steps_of(data) if step.asks.get("peak_worker_bytes")]
    largest = max(steps, key=lambda step: int(step.asks["peak_worker_bytes"]), default=None)
    words = "" if largest is None else f"; a worker of {largest.name!r} used {size(largest.asks['peak_worker_bytes'])}"
    yield Advice(
        "memory_near_limit",
        ADVICE,
        "memory is nearly used up",
        f"at most {size(peak)} of {size(limit)}, {percent(min(1.0, peak / limit))}{words}",
        "Lower the blocksize of the reader or the batch_size of the largest stage, or raise --memory-limit.",
    )


def fixed_workers(data: Data) -> Iterator[Advice]:
    """A stage that is busy all the time, but may not have more workers."""
    cpus = float((data.get("machine") or {}).get("cpus") or 0)
    for step in steps_of(data):
        workers = step.asks.get("num_workers")
        if workers is None or not _is_bottleneck(data, step) or workers * float(step.asks.get("cpus") or 1) >= cpus:
            continue
        yield Advice(
            "fixed_workers",
            ADVICE,
            f"{step.name!r} may not have more than {workers} worker{'s' * (workers != 1)}",
            f"{_busy(step)}, on {cpus:g} CPUs",
            f"Remove num_workers of {step.name!r}: the balancer then gives it as many workers as it needs.",
        )


def gpu_memory(data: Data) -> Iterator[Advice]:
    """A busy stage whose workers fill the memory of the GPUs."""
    for step in steps_of(data):
        needs = float(step.asks.get("gpu_memory_gb") or 0)
        gpus = data["plans"][step.plan].get("gpus") or ()
        if not needs or not gpus or not _is_bottleneck(data, step):
            continue
        fits = sum(int(gpu["memory_total"] / (1 << 30) // needs) for gpu in gpus)
        if not fits or step.most_workers < fits:
            continue
        yield Advice(
            "gpu_memory",
            ADVICE,
            f"{step.name!r} cannot have more workers, because the memory of the GPUs is reserved",
            f"{fits} workers of {needs:g} GB on {len(gpus)} GPUs; {_busy(step)}",
            f"Lower gpu_memory_gb of {step.name!r} to what it uses, take a smaller model, or add GPUs.",
        )


def few_blocks(data: Data) -> Iterator[Advice]:
    """An input of fewer blocks than there are CPUs."""
    blocks, cpus = data.get("blocks") or {}, float((data.get("machine") or {}).get("cpus") or 0)
    total, wall = int(blocks.get("total") or 0), float(data.get("wall_s") or 0)
    files = int((data.get("inputs") or {}).get("files") or 0)
    if not total or total >= cpus or wall < LEAST_S:
        return
    of = f"{files:,} file{'s' * (files != 1)}"
    yield Advice(
        "few_blocks",
        ADVICE,
        "the input is split into fewer blocks than there are CPUs",
        f"{total:,} block{'s' * (total != 1)} of {of}, for {cpus:g} CPUs",
        "Set a smaller blocksize. Compressed JSONL files cannot be split: write several smaller ones.",
    )


def slow_storage(data: Data) -> Iterator[Advice]:
    """Workers that waited instead of computing, in a run whose time is spent with its files."""
    steps, cpu = steps_of(data), data.get("cpu_s")
    busy = sum(step.busy_s for step in steps)
    if cpu is None or busy < LEAST_S or (data.get("executor") or {}).get("name") != "LocalExecutor":
        return
    if any(step.needs_gpu for step in steps) or float(cpu) >= busy * COMPUTES:
        return
    if float(data.get("load") or 0) > float((data.get("machine") or {}).get("cpus") or 1):
        return  # other programs used the CPUs
    slowest = max((stage for step in steps for stage in step.accounts), key=lambda one: float(one["busy_s"]))
    yield Advice(
        "slow_storage",
        ADVICE,
        "workers mostly waited while they worked",
        f"{seconds(float(cpu))} of CPU time in {seconds(busy)} of work, {percent(float(cpu) / busy)}; "
        f"most of the work was in {slowest['name']!r}",
        "If that stage reads or writes: use faster or local storage, or compress the files. If it calls a service: "
        "make process an 'async def'.",
    )


def oversized_tasks(data: Data) -> Iterator[Advice]:
    """A single task that takes a large part of the run."""
    for step in steps_of(data):
        longest, mean = (float(step.stats.get(name) or 0) for name in ("service_s_max", "service_s_mean"))
        done = int(step.asks.get("tasks_done") or 0)
        if step.wall_s < LEAST_S or done < 4 or longest < max(4 * mean, step.wall_s * LONG_TASK):
            continue
        yield Advice(
            "oversized_tasks",
            ADVICE,
            f"{step.name!r} has a task that is much larger than the others",
            f"{seconds(longest)}, {percent(min(1.0, longest / step.wall_s))} of the run; the mean is {seconds(mean)}",
            "Set a smaller blocksize of the reader, or split the largest input file: no other worker can help with it.",
        )


def blocked_by_output(data: Data) -> Iterator[Advice]:
    """A step that waited because the byte budget was full."""
    for step in steps_of(data):
        if step.wall_s < LEAST_S or step.blocked_share < BLOCKED:
            continue
        budget = int(data["plans"][step.plan].get("budget_bytes") or 0)
        yield Advice(
            "blocked_by_output",
            NOTE,
            f"{step.name!r} was held back",
            f"for {percent(step.blocked_share)} of the {seconds(step.wall_s)} its output did not fit the budget of "
            f"{size(budget)}",
            "The steps after it are slower. If memory is free, a higher --memory-limit evens out short delays.",
        )


def _is_bottleneck(data: Data, step: RunStep) -> bool:
    if step.wall_s < LEAST_S or (step.busy_share or 0.0) < BUSY:
        return False
    others = [one.busy_share or 0.0 for one in steps_of(data) if one.plan == step.plan]
    return step.busy_share == max(others)


def _busy(step: RunStep) -> str:
    return f"its workers were busy for {percent(step.busy_share or 0.0)} of the time"
