"""Some records are read before anything starts: to check fields, and to forecast what a run will take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from gristmill import fast_json
from gristmill.errors import PlanError, TextFieldError
from gristmill.logs import logger
from gristmill.near_names import near
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import DocumentBatch

BYTES = 1 << 20
FOOTERS = 32
"""Parquet files whose rows are counted; the others are taken to be like them."""
RECORDS = 1000
MOST_PATHS = 1000
"""Paths inside one field; further ones are ignored."""


@dataclass(frozen=True)
class InputSample:
    """Some documents of the files of one kind: plain, compressed, or Parquet."""

    read: Callable[[], DocumentBatch]
    scale: Callable[[DocumentBatch], float]
    """How many times as large all files of the kind are as a batch that was read."""
    share: float = 1.0
    """The fraction of the documents of these files that the reader takes."""


class CountingFile:
    """Counts the bytes that are read of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.taken = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def take(self) -> int:
        """The bytes that were read since the last call."""
        taken, self.taken = self.taken, 0
        return taken

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.taken += len(data)
        return data


def fields_of(lines: bytes) -> dict[str, set[str]]:
    """The fields of the first records in the beginning of a file, each with the paths of members inside."""
    found: dict[str, set[str]] = {}
    for line in lines.removeprefix(b"\xef\xbb\xbf").splitlines()[:RECORDS]:
        try:
            record = fast_json.loads(line)
        except fast_json.JSONDecodeError:
            continue
        if isinstance(record, dict):
            for name, value in record.items():
                paths = found.setdefault(name, set())
                if isinstance(value, dict) and len(paths) < MOST_PATHS:
                    paths.update(_paths_in(value, name))
    return found


def _paths_in(value: dict[str, Any], name: str) -> Iterator[str]:
    for key, member in value.items():
        yield f"{name}.{key}"
        if isinstance(member, dict):
            yield from _paths_in(member, f"{name}.{key}")


def first_keys(path: str) -> list[str]:
    """The top-level fields that hold what is at a path: ``a.b.c`` may be a field, or in one named ``a.b`` or ``a``."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def check_fields(
    reader: str,
    text_field: str | None,
    path: str,
    found: Mapping[str, set[str]],
    stages: Sequence[ProcessingStage[Any, Any]],
) -> None:
    """Raise `PlanError` if the first records have no text, or lack a field that a filter needs or that seems misspelt.

    Any other missing field is only a warning: it may be rare.
    """
    if not found:
        return
    there = ", ".join(sorted(found)[:20])
    if text_field is not None and text_field not in found:
        raise TextFieldError(
            f"{reader!r}: the first records of {path} have no field {text_field!r}; they have: {there}.\n"
            "    Set text_field=... if the text is in another field, or text_field=None if there is none."
        )
    made: set[str] = set()
    for stage in stages:
        for name in stage.inputs()[1] if stage.declares_inputs() else ():
            if name in found or name in made:
                continue
            keys = [key for key in first_keys(name) if stage.takes_paths and (key in found or key in made)]
            if any(key in made or name in found[key] for key in keys):
                continue
            paths = {path for key in keys for path in found.get(key, ())}
            meant = near(name, [*found, *paths])
            words = f"stage {stage.name!r} needs the field {name!r}, which the first records of {path} do not have"
            if meant or stage.needs_all_fields:
                hint = f" Did you mean {meant!r}?" if meant else f" They have: {there}."
                raise PlanError(f"{words}.{hint}")
            logger.warning("%s; where it is missing it is null", words)
        if not stage.declares_outputs():
            return  # the columns after it are not known
        made.update(stage.outputs()[1])
