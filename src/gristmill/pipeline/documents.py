"""Which blocks of a data set are left to do, and where what becomes of their documents is written down."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gristmill import __version__, fast_json
from gristmill.backends.base import Plan
from gristmill.errors import PlanError, not_writable
from gristmill.ledger.commits import RUN, CommitLog
from gristmill.ledger.entry import Entry
from gristmill.ledger.run import RunLedger
from gristmill.ledger.sides import Output, is_output
from gristmill.pipeline.fingerprint import describe_stage
from gristmill.stages.core import ProcessingStage
from gristmill.storage import Folder
from gristmill.tasks import FileBlock, Task


def with_ledger(
    plan: Plan,
    stages: Sequence[ProcessingStage[Any, Any]],
    text: Callable[[], str | None],
    blocks: Sequence[Task[Any]],
    fresh: bool,
) -> tuple[Plan, list[Task[Any]]]:
    """The plan with a ledger for the documents of these blocks, and the blocks that are not done yet.

    ``text`` gives the pipeline as YAML, kept with the output so that documents can be explained. Raises `OutputChanged`
    if the output folder holds what another pipeline or another input has made.
    """
    output = output_of(plan)
    if output is None:
        ledger = RunLedger()
        _note_input(ledger, stages[0], blocks)
        return replace(plan, ledger=ledger), list(blocks)
    check_apart(output.folder, blocks, getattr(stages[0], "file_paths", None))
    log = CommitLog(output.folder)
    ledger = RunLedger(log)
    _note_input(ledger, stages[0], blocks)
    made_of = {**fingerprint(plan, stages[0], blocks), "pipeline": text()}
    for block, entry in _opened(log, made_of, fresh):
        ledger.resume(block, entry)
    left = [block for block in blocks if int(block.task_id) not in ledger.blocks]
    return replace(plan, ledger=ledger, output=output), left


def _note_input(ledger: RunLedger, reader: ProcessingStage[Any, Any], blocks: Sequence[Task[Any]]) -> None:
    ledger.blocks_total = len(blocks)
    ledger.sizes = reader.block_sizes(blocks)
    ledger.bytes_total = sum(ledger.sizes)


def _opened(log: CommitLog, made_of: dict[str, Any], fresh: bool) -> Iterator[tuple[int, Entry]]:
    try:
        yield from log.open(made_of, fresh)
    except OSError as error:
        log.close()
        raise not_writable(log.folder.url, error) from error
    except BaseException:
        log.close()
        raise


def output_of(plan: Plan) -> Output | None:
    """The stage that writes documents, if there is one."""
    return next(filter(is_output, stages_of(plan)), None)


def stages_of(plan: Plan) -> list[ProcessingStage[Any, Any]]:
    return [stage for step in plan.steps for stage in step.stages]


def check_apart(folder: Folder, blocks: Sequence[Task[Any]], given: Any) -> None:
    """Refuse to write into a folder that is read from: the next run would take its own output for input."""
    root = folder.path().rstrip("/") + "/"
    words = "write to another folder than the input's."
    for block in blocks:
        for part in block.data if isinstance(block, FileBlock) else ():
            if same_storage(part.path, folder.url) and folder.fs._strip_protocol(part.path).startswith(root):
                raise PlanError(f"{folder.url} is to be written to, but {part.path} in it is read: {words}")
    for path in [given] if isinstance(given, str | os.PathLike) else list(given or ()):
        place = os.fspath(path)
        if same_storage(place, folder.url) and root.startswith(folder.fs._strip_protocol(place).rstrip("/") + "/"):
            raise PlanError(f"{folder.url} is to be written to, but all that is in {place} is read: {words}")


def same_storage(one: str, other: str) -> bool:
    def protocol(url: str) -> str:
        return url.partition("://")[0] if "://" in url else "file"

    return protocol(one) == protocol(other)


def fingerprint(plan: Plan, reader: ProcessingStage[Any, Any], blocks: Sequence[Task[Any]]) -> dict[str, Any]:
    """What the output is a function of: stages, input files, and how they are cut."""
    return fingerprint_of(plan.name, [describe_stage(stage) for stage in stages_of(plan)], reader, blocks)


def fingerprint_of(
    name: str, described: list[dict[str, Any]], reader: ProcessingStage[Any, Any], blocks: Sequence[Task[Any]]
) -> dict[str, Any]:
    """The same of stages that are described already."""
    versions = getattr(reader, "versions", list)
    cut = hashlib.blake2b(digest_size=16)
    for block in blocks:
        cut.update(repr(block.data).encode())
    return {
        "gristmill": __version__,
        "name": name,
        "stages": described,
        "inputs": [list(pair) for pair in versions()],
        "blocks": cut.hexdigest(),
    }


def remembered(output: str) -> str | None:
    """The pipeline, as YAML, that has written to a folder; None if it could not be written as YAML."""
    folder = Folder(output)
    try:
        run = fast_json.loads(folder.read(RUN))
    except (FileNotFoundError, NotADirectoryError, fast_json.JSONDecodeError):
        raise PlanError(f"{output} is not the output of a run: there is no {RUN} in it") from None
    text: str | None = run.get("pipeline")
    return text
