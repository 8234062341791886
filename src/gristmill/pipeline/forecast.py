"""What a stage that looks at all documents will take, told before anything starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from gristmill.metrics.format import size
from gristmill.stages.barrier import BarrierStage, Forecast, Looked
from gristmill.stages.core import ProcessingStage
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.stages.text.io.reader.sample import BYTES
from gristmill.tasks import FileBlock, Task


def forecast(barrier: BarrierStage, looked: Looked | None, memory: int, workers: int, stored: bool) -> list[str]:
    """Lines for the user; none if too little is known of the input."""
    if looked is None:
        return []
    told = barrier.forecast(looked, memory, workers, stored)
    return [] if told is None else _lines(barrier.name, told, memory)


def _lines(name: str, told: Forecast, memory: int) -> list[str]:
    lines = [
        f"{name}: about {told.documents:,} documents, {size(told.text_bytes)} of text{told.words}",
        f"{name}: estimated memory {size(told.memory_bytes)} of {size(memory)}, "
        f"{size(told.disk_bytes)} of disk while it runs, {_time(told.seconds)}",
    ]
    if told.memory_bytes > memory:
        lines.append(
            f"{name}: the estimate is above memory_limit: what is compared at a time fits it, but where the executor "
            "has the same limit workers may run out of memory, and tasks fail; raise it, lower the blocksize of the "
            "reader, or take fewer workers"
        )
    return lines


def look(barrier: BarrierStage, reader: ProcessingStage[Any, Any], blocks: Sequence[Task[Any]]) -> Looked | None:
    """How many documents there are, by what some are like, and how long they take."""
    if not isinstance(reader, FileReader):
        return None
    try:
        some = reader.some([block for block in blocks if isinstance(block, FileBlock)], BYTES, [barrier])
        if some is None:
            return None
        reader.preload()
        barrier.preload()
        for _ in range(2):  # the first time what is slow to load is loaded
            began = time.perf_counter()
            batch = some.read()
            keys = barrier.keys(batch)
            seconds = time.perf_counter() - began
        times = some.times(batch)
    except Exception:
        return None  # what is wrong is said by those who run into it
    rows = batch.num_items
    if not rows:
        return None
    texts = int(sum(keys.column("size").to_pylist()))
    return Looked(round(times * rows), round(times * texts), seconds / rows, round(times * keys.num_rows))


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
