"""What a stage that looks at all documents will take, told before anything starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from gristmill.metrics.format import size
from gristmill.stages.barrier import BarrierStage, Forecast, Looked
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import FileBlock, FileRange, Task

_SAMPLE_BYTES = 1 << 20


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
            f"{name}: the estimate is above memory_limit: expect workers that run out of memory, and tasks that fail; "
            "raise it, lower the blocksize of the reader, or take fewer workers"
        )
    return lines


def look(barrier: BarrierStage, reader: ProcessingStage[Any, Any], blocks: Sequence[Task[Any]]) -> Looked | None:
    """How many documents there are, by what some are like, and how long they take."""
    reading_for = getattr(reader, "reading_for", None)
    parts = [part for block in blocks if isinstance(block, FileBlock) for part in block.data]
    if reading_for is None or not parts or any(part.stop < 0 for part in parts):
        return None
    middle = parts[len(parts) // 2]
    whole = sum(part.stop - part.start for part in parts)
    near = FileRange(middle.path, middle.start, min(middle.stop, middle.start + _SAMPLE_BYTES))
    if middle.path.endswith((".parquet", ".pq")):
        return None
    try:
        reader.preload()
        barrier.preload()
        for _ in range(2):  # the first time what is slow to load is loaded
            began = time.perf_counter()
            batch = reading_for([barrier]).process(FileBlock([near], task_id="0"))
            keys = barrier.keys(batch)
            seconds = time.perf_counter() - began
    except Exception:
        return None  # what is wrong is said by those who run into it
    rows = batch.num_items
    if not rows:
        return None
    sampled = near.stop - near.start
    texts = int(sum(keys.column("size").to_pylist()))
    scale = whole / sampled
    return Looked(round(scale * rows), round(scale * texts), seconds / rows, round(scale * keys.num_rows))


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
