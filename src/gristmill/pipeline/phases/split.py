"""The split of a pipeline at a barrier: its folder, its parts, and the documents that failed before it."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gristmill import fast_json
from gristmill.errors import PipelineError
from gristmill.ledger.commits import PHASES, CommitLog
from gristmill.ledger.excluded import QUARANTINE, records_name
from gristmill.pipeline.planner import PipelineInput, Reader, Stage
from gristmill.stages.barrier import KEYS, BarrierStage
from gristmill.stages.spool import DOCUMENTS, FAILED, WithoutKeys, is_empty
from gristmill.storage import Folder
from gristmill.tasks import FileBlock, SpoolBlock, Task
from gristmill.tasks.names import block_of_file, part_name

GIVEN_UP = ".failed-"
"""In the names of files in quarantine with documents that failed (`ledger.failed`)."""


@dataclass(frozen=True)
class Phase:
    """The stages between two barriers, and their input."""

    stages: list[Stage]
    reader: Reader
    """The stage that reads the blocks, for the fingerprint."""
    blocks: list[Task[Any]]
    source: PipelineInput


@dataclass
class Split:
    """The state of a split."""

    barrier: BarrierStage
    folder: Folder
    records: Folder
    parts: list[tuple[str, list[str]]] = field(default_factory=list)
    """By name, in order, each with the source files of its documents."""
    documents: dict[str, int] = field(default_factory=dict)
    """The number of documents by part."""
    read_again: bool = False
    """Whether documents are read from the source again after the split, as no stage changed them before it."""
    version: str = ""
    is_cleared: bool = False
    """Whether a run has finished, so that stored documents were removed."""
    failed_parts: list[str] = field(default_factory=list)
    """Parts that are read again and have documents without keys."""
    failed_blocks: dict[str, str] = field(default_factory=dict)
    """Blocks that are read again and failed before the split, each with the reason."""

    def take(self, decided: Mapping[str, Any]) -> None:
        """Take the state that an earlier run has decided."""
        self.parts = [(name, files) for name, files in decided["parts"]]
        self.documents = dict(decided["documents"])
        self.is_cleared = bool(decided.get("cleared", False))
        self.failed_parts, self.failed_blocks = decided["failed"]

    def forget(self) -> None:
        """Reset the state of an earlier run."""
        self.parts, self.documents, self.is_cleared = [], {}, False
        self.failed_parts, self.failed_blocks = [], {}

    def keeps(self, name: str) -> bool:
        """Return whether a file in its folder is kept at the end of the run."""
        return name in self.barrier.stays or name.endswith(FAILED)

    def without(self) -> list[Stage]:
        """Return a stage that removes documents that failed before the split, if there are any."""
        if not self.failed_parts and not self.failed_blocks:
            return []
        known = [part for part in self.documents if str(block_of_file(part)) in self.failed_blocks]
        name = f"without keys of {self.barrier.name}"
        return [WithoutKeys(name, self.folder, self.failed_parts, self.failed_blocks, known)]


def check_fields(split: Split) -> None:
    """Raise `PipelineError` if no document has a key field: it is misspelt, and no document would be a duplicate."""
    parts = [name for name, count in split.documents.items() if count]
    for name in split.barrier.key_columns if parts else ():
        if all(is_empty(split.folder, part, name) for part in parts):
            raise PipelineError(
                f"{split.barrier.name!r}: no document has anything in the field {name!r}, so nothing was decided and "
                "nothing written.\nName the field that is meant, and start over with --fresh, or run(fresh=True)."
            )


def phase_folder(output: Folder, number: int) -> Folder:
    """Return the folder of the keys before the split of this number."""
    return output.sub(f"{PHASES}/{number}")


def records_folder(output: Folder, number: int) -> Folder:
    """Return the folder of the records of documents removed at the split of this number."""
    return output.sub(records_name(number))


def part_names(folder: Folder) -> list[str]:
    return [name.removesuffix(KEYS) for name in folder.names() if name.endswith(KEYS)]


def committed(folder: Folder) -> dict[str, int]:
    """Return the number of documents of each part.

    Files of failed attempts are removed: a worker may die between a file and its report.
    """
    found = CommitLog(folder).files()
    for name in folder.names():
        if name.endswith((KEYS, DOCUMENTS, FAILED)) and name not in found:
            folder.remove(name)
    parts: dict[str, int] = {}
    for name, documents in found.items():
        if not name.endswith((KEYS, DOCUMENTS)):
            continue
        part = name.removesuffix(KEYS).removesuffix(DOCUMENTS)
        parts[part] = parts.get(part, 0) + documents
    return parts


def failed_blocks(folder: Folder) -> dict[str, str]:
    """Return blocks that failed as a whole, or from some part on, each with the reason."""
    found: dict[str, str] = {}
    for name in folder.names(QUARANTINE):
        if GIVEN_UP in name:
            first = folder.read(f"{QUARANTINE}/{name}").partition(b"\n")[0]
            found.setdefault(str(block_of_file(name)), fast_json.loads(first)["reason"])
    return found


def known_block(block: Task[Any], documents: Mapping[str, int]) -> Task[Any]:
    """Return a block with the number of its documents, if it is one part."""
    if not isinstance(block, FileBlock):
        return block
    return replace(block, documents=documents.get(part_name(block.task_id, "")))


def files_of(part: str, blocks: Sequence[Task[Any]]) -> list[str]:
    number = block_of_file(part)
    block = blocks[number] if number is not None and number < len(blocks) else None
    if isinstance(block, FileBlock):
        return sorted({piece.path for piece in block.data})
    return list(block.files) if isinstance(block, SpoolBlock) else []


def import_all(modules: Sequence[str]) -> None:
    """Import modules in advance. An error is raised again when they are used."""
    with suppress(Exception):
        for name in modules:
            importlib.import_module(name)


def short_hash(value: Any) -> str:
    return hashlib.blake2b(fast_json.dumps(value), digest_size=12).hexdigest()
