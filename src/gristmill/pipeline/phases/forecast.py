"""Forecasts: what a stage that needs all documents will take, printed before anything starts and in a dry run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gristmill.metrics.format import size
from gristmill.pipeline.planner import has_barrier
from gristmill.sizes import parse_size
from gristmill.stages.barrier import BarrierStage, Forecast, InputEstimate
from gristmill.stages.core import ProcessingStage
from gristmill.stages.protocols import own_tasks
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.stages.text.io.reader.sample import BYTES
from gristmill.tasks import FileBlock, Task

if TYPE_CHECKING:
    from gristmill.backends.base import Executor


def forecasts(stages: Sequence[ProcessingStage[Any, Any]], executor: Executor) -> Iterator[str]:
    """The forecasts of all stages that need all documents; ``stages`` are those of a pipeline, without composites."""
    if not has_barrier(stages):
        return
    reader = stages[0]
    blocks = own_tasks(reader) or []
    for n, stage in enumerate(stages):
        if isinstance(stage, BarrierStage):
            memory, workers = limits_of(executor, stage.memory_limit)
            before = stages[1:n]
            estimate = estimate_input(stage, reader, blocks, stages[1:] if before else None)
            yield from forecast(stage, estimate, memory, workers, before)


def forecast(
    barrier: BarrierStage,
    estimate: InputEstimate | None,
    memory: int,
    workers: int,
    before: Sequence[ProcessingStage[Any, Any]],
) -> list[str]:
    """Lines for the user; none if too little is known of the input. ``before``: the stages after the reader."""
    if estimate is None:
        return []
    expected = barrier.forecast(estimate, memory, workers, bool(before))
    lines = [] if expected is None else _lines(barrier.name, expected, memory)
    if lines and before:
        names = ", ".join(stage.name for stage in before)
        lines.append(
            f"{barrier.name}: this is for all documents that are read. Those that stages before it ({names}) drop "
            "are not subtracted, and what these stages take themselves is not added"
        )
    return lines


def limits_of(executor: Executor, memory_limit: int | str | None) -> tuple[int, int]:
    """Bytes of memory and the number of workers that there are for work between phases."""
    from gristmill.backends.engine import machine

    limits = executor.limits()
    given = None if memory_limit is None else parse_size(memory_limit)
    memory = given or limits.memory_bytes or machine.memory_bytes() * 9 // 10
    return memory, max(1, int(limits.cpus or machine.cpu_count()))


def _lines(name: str, expected: Forecast, memory: int) -> list[str]:
    of_text = f", {size(expected.text_bytes)} of text" if expected.text_bytes else ""
    lines = [
        f"{name}: about {expected.documents:,} documents{of_text}{expected.words}",
        f"{name}: estimated memory {size(expected.memory_bytes)} of {size(memory)}, "
        f"{size(expected.disk_bytes)} of disk while it runs, {_time(expected.seconds)}",
    ]
    if expected.memory_bytes > memory:
        lines.append(
            f"{name}: the estimate is above memory_limit: what is compared at a time fits it, but where the executor "
            "has the same limit workers may run out of memory, and tasks fail; raise it, lower the blocksize of the "
            "reader, or take fewer workers"
        )
    return lines


def estimate_input(
    barrier: BarrierStage,
    reader: ProcessingStage[Any, Any],
    blocks: Sequence[Task[Any]],
    after: Sequence[ProcessingStage[Any, Any]] | None = None,
) -> InputEstimate | None:
    """Estimate how many documents there are, and how long they take, by some of each kind of file.

    ``after`` are the stages whose fields are read with those of the barrier, where documents are put aside for it.
    """
    if not isinstance(reader, FileReader):
        return None
    of_files = [block for block in blocks if isinstance(block, FileBlock)]
    documents = texts = keys = stored = seconds = 0.0
    try:
        reader.preload()
        barrier.preload()
        for sample in reader.samples(of_files, BYTES, [barrier] if after is None else after):
            for _ in range(2):  # the first time what is slow to load is loaded
                began = time.perf_counter()
                batch = sample.read()
                made = barrier.keys(batch)
                took = time.perf_counter() - began
            times = sample.scale(batch) * sample.share
            documents += times * batch.num_items
            texts += times * sum(made.column("size").to_pylist())
            keys += times * made.num_rows
            stored += times * batch.data.nbytes
            seconds += times * took
    except Exception:
        return None  # the run itself reports what is wrong
    if documents < 1:
        return None
    share = 1.0 if reader.found.counted is None else reader.found.counted / documents
    block_bytes, stream_bytes = reader.bytes_at_once(of_files)
    return InputEstimate(
        documents=round(share * documents),
        text_bytes=round(share * texts),
        seconds_each=seconds / documents,
        keys=round(share * keys),
        stored_bytes=round(share * stored),
        block_bytes=block_bytes,
        stream_bytes=stream_bytes,
    )


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
