"""Which blocks of a data set are left to do, and where what becomes of their documents is written down."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gristmill import __version__
from gristmill.backends.base import Plan
from gristmill.errors import PlanError
from gristmill.ledger.commits import CommitLog
from gristmill.ledger.run import RunLedger
from gristmill.ledger.sides import Output
from gristmill.pipeline.fingerprint import describe_stage
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import FileBlock, Task


def with_ledger(plan: Plan, blocks: Sequence[Task[Any]], fresh: bool) -> tuple[Plan, list[Task[Any]]]:
    """The plan with a ledger for the documents of these blocks, and the blocks that are not done yet.

    Raises `OutputChanged` if the output folder holds what another pipeline or another input has made.
    """
    output = output_of(plan)
    if output is None:
        return replace(plan, ledger=RunLedger()), list(blocks)
    check_apart(output, blocks)
    log = CommitLog(output.folder)
    ledger = RunLedger(log)
    for block, entry in log.open(fingerprint(plan, blocks), fresh):
        ledger.resume(block, entry)
    left = [block for block in blocks if int(block.task_id) not in ledger.blocks]
    return replace(plan, ledger=ledger, output=output), left


def output_of(plan: Plan) -> Output | None:
    """The stage that writes documents: the last one, if it does."""
    last: Any = plan.steps[-1].stages[-1]
    return last if hasattr(last, "render") and hasattr(last, "folder") else None


def stages_of(plan: Plan) -> list[ProcessingStage[Any, Any]]:
    return [stage for step in plan.steps for stage in step.stages]


def check_apart(output: Output, blocks: Sequence[Task[Any]]) -> None:
    """Refuse to write into a folder that is read from: the next run would take its own output for input."""
    root = output.folder.path().rstrip("/") + "/"
    for block in blocks:
        for part in block.data if isinstance(block, FileBlock) else ():
            path = output.folder.fs._strip_protocol(part.path)
            if path.startswith(root) and same_storage(part.path, output.folder.url):
                raise PlanError(
                    f"{output.folder.url} is to be written to, but {part.path} in it is read: "
                    "write to another folder than the input's."
                )


def same_storage(one: str, other: str) -> bool:
    def protocol(url: str) -> str:
        return url.partition("://")[0] if "://" in url else "file"

    return protocol(one) == protocol(other)


def fingerprint(plan: Plan, blocks: Sequence[Task[Any]]) -> dict[str, Any]:
    """What the output is a function of: stages, input files, and how they are cut."""
    reader: Any = plan.steps[0].stages[0]
    cut = hashlib.blake2b(digest_size=16)
    for block in blocks:
        cut.update(repr(block.data).encode())
    return {
        "gristmill": __version__,
        "name": plan.name,
        "stages": [describe_stage(stage) for stage in stages_of(plan)],
        "inputs": [list(pair) for pair in reader.versions()] if hasattr(reader, "versions") else [],
        "blocks": cut.hexdigest(),
    }
