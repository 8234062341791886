"""The exact names of a run's own files in an output folder: a user's files are never touched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gristmill.ledger.excluded import EXCLUDED, QUARANTINE
from gristmill.ledger.scores import EXTENSION, SCORES
from gristmill.stages.protocols import Sink
from gristmill.storage import TEMPORARY, Folder

PLACES = ("", EXCLUDED, QUARANTINE, SCORES)
"""The folders of an output that every run writes blocks to."""
_DIGITS = r"(?:\d{{{0}}}|z+\d{{{0},}})"
"""A number of so many digits or more, as `gristmill.tasks.names.part_name` writes it."""
_BLOCK = r"part-(?:(?P<block>\d{6})|z+(?P<large>\d{7,}))"
_SLICE = f"-{_DIGITS.format(8)}-{_DIGITS.format(8)}"
_REST = rf"(?:\.{_DIGITS.format(5)}|{_SLICE})*"
_KEY = r"\.[A-Za-z0-9_-]+"
"""What a file in a folder of the writer's own has after the name of its part. Numbers of parts have no letters."""
_RECORDS = re.compile(rf"{_BLOCK}{_REST}\.parquet")


@dataclass(frozen=True)
class OutputNames:
    """The names of the files that a run can write.

    >>> OutputNames(".jsonl", 12).block_of("", "part-000003.jsonl")
    3
    >>> OutputNames(".jsonl", 12).block_of("", "part-2024-notes.txt") is None
    True
    """

    extension: str
    """How the files of the writer end."""
    blocks: int | None = None
    """How many blocks the input has; None: any number."""
    phase: int = 0
    """The number of the phase whose files were put beside the output; 0: files of the output itself."""
    excluded_extension: str = ""
    """How the files of dropped documents end; empty: as those of the writer."""
    folders: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The folders of the writer's own, each with how its files end: see `Sink.folders`."""

    @classmethod
    def of(cls, output: Sink[Any, Any], blocks: int | None) -> OutputNames:
        """Return the names of the files of a run that ends in this stage."""
        end, excluded = output.extension, output.excluded_writer.extension
        return cls(end, blocks, excluded_extension="" if excluded == end else excluded, folders=dict(output.folders))

    @classmethod
    def of_run(cls, run: Mapping[str, Any], blocks: int | None = None, phase: int = 0) -> OutputNames:
        """Return the names that `plain` wrote into run.json. Raise as a lookup does if it did not."""
        output = run["output"]
        folders = {str(place): [str(end) for end in ends] for place, ends in dict(output.get("folders", {})).items()}
        return cls(str(output["extension"]), blocks, phase, str(output.get("excluded_extension", "")), folders)

    def plain(self) -> dict[str, Any]:
        """Return what run.json holds of them."""
        made: dict[str, Any] = {"extension": self.extension, "blocks": self.blocks}
        if self.excluded_extension:
            made["excluded_extension"] = self.excluded_extension
        if self.folders:
            made["folders"] = {place: list(ends) for place, ends in self.folders.items()}
        return made

    @property
    def places(self) -> tuple[str, ...]:
        """The folders of the output that the run writes blocks to."""
        return (*PLACES, *self.folders)

    def block_of(self, place: str, name: str) -> int | None:
        """The block of a file directly in one of ``places``; None for a file that is not the run's."""
        match = self._patterns[place].fullmatch(name)
        if match is None:
            return None
        block = int(match["block"] or match["large"])
        return block if self.blocks is None or block < self.blocks else None

    def is_own(self, name: str) -> bool:
        """Whether a file of an output folder, by its relative name, is the run's."""
        place, _, base = name.rpartition("/")
        return place in self.places and self.block_of(place, base) is not None

    def found_in(self, folder: Folder, unfinished: bool = False) -> Iterator[tuple[str, int]]:
        """The run's files in an output folder, each with its block."""
        for place in self.places:
            for name in folder.names(place, unfinished):
                block = self.block_of(place, name)
                if block is not None:
                    yield f"{place}/{name}" if place else name, block

    @cached_property
    def _patterns(self) -> dict[str, re.Pattern[str]]:
        phase = rf"\.phase{self.phase}" if self.phase else ""
        end = re.escape(self.extension)
        stem = f"{_BLOCK}{phase}{_REST}"
        if self.phase:  # the number comes before the first dot, so after all slices of the block
            stem = f"{_BLOCK}(?:{_SLICE})*{phase}{_REST}"
        step = r"(?:\.step\d+)?"
        own = {
            place: re.compile(r"(?!)" if self.phase else f"{stem}{_KEY}(?:{'|'.join(map(re.escape, ends))})")
            for place, ends in self.folders.items()
        }
        return own | {
            "": re.compile(r"(?!)" if self.phase else f"{stem}{end}"),
            EXCLUDED: re.compile(rf"{stem}{step}(?:\.\d+)?{re.escape(self.excluded_extension or self.extension)}"),
            QUARANTINE: re.compile(rf"{stem}(?:{step}(?:\.\d{{5,}})?|\.failed-(?:\d+-\d+|all))\.jsonl"),
            SCORES: re.compile(rf"{stem}{step}{re.escape(EXTENSION)}"),
        }


def phase_name(file: str, number: int) -> str:
    """Return the name in the output of a file that a phase wrote beside its documents."""
    stem, dot, end = file.partition(".")
    return f"{stem}.phase{number}{dot}{end}"


def is_record(name: str) -> bool:
    """Whether a file in a folder of records is a run's."""
    return _RECORDS.fullmatch(name) is not None


def is_temporary(name: str, mark: str) -> bool:
    """Whether a file is an unfinished one of the run with this mark."""
    return bool(mark) and name.startswith(f"{TEMPORARY}{mark}-")
