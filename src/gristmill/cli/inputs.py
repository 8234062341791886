"""Describe the input and the output of a pipeline without reading or writing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

from gristmill.metrics import format as fmt
from gristmill.secrets import public_url
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.registry import arguments_of
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.tasks import FileBlock, Task


def describe_inputs(tasks: Iterable[Task[Any]] | None) -> str:
    """Describe the initial tasks: of a reader, its blocks, files and bytes."""
    if tasks is None:
        return "none: the first stage makes its own"
    if not isinstance(tasks, Sized):
        return "tasks of the target, as many as it gives"
    blocks: list[FileBlock] = (
        [task for task in tasks if isinstance(task, FileBlock)] if isinstance(tasks, Sequence) else []
    )
    if not blocks or len(blocks) != len(tasks):
        return f"{len(tasks):,} task{'s' * (len(tasks) != 1)}"
    parts = {part.path: part for block in blocks for part in block.data}
    paths = sorted(parts)
    sizes = [None if (stamp := parts[path].stamp) is None else stamp.size for path in paths]
    known = sum(size for size in sizes if size is not None)
    return (
        f"{len(blocks):,} block{'s' * (len(blocks) != 1)} of {len(paths):,} file{'s' * (len(paths) != 1)}, "
        f"{fmt.size(known)}{' or more' * (None in sizes)}"
    )


def describe_limits(stages: Sequence[ProcessingStage[Any, Any]]) -> str:
    """Describe which documents of its input a reader reads; empty if it reads all."""
    reader = stages[0] if stages else None
    if not isinstance(reader, FileReader):
        return ""
    first = "" if reader.limit is None else f"the first {reader.limit:,} documents"
    sample = "" if reader.sample is None else f"a sample of {reader.sample:.12g} of the documents"
    words = " of ".join(part for part in (first, sample) if part)
    return f"; reads only {words}" if words else ""


def output_folders(stages: Sequence[ProcessingStage[Any, Any]]) -> Iterator[str]:
    """Yield the folders to which the writers of a pipeline write."""
    for stage in stages:
        for leaf in stage.flatten() if isinstance(stage, CompositeStage) else [stage]:
            path = (arguments_of(leaf) or {}).get("path")
            if isinstance(path, str | os.PathLike):
                yield public_url(os.fspath(path))
