"""The configuration of a run, from the fingerprints in its output folder: stages with arguments, and input."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import count, takewhile
from typing import Any

from gristmill.errors import OutputDamaged
from gristmill.ledger.commits import PHASES, RUN, CommitLog
from gristmill.report.place import Data
from gristmill.report.record import cut
from gristmill.storage import Folder

MOST_STAGES = 500
LONGEST_PIPELINE = 100_000
SHOWN_INPUTS = 20
_KEYS_OF = "keys of "
_OF_A_SPLIT = ("gristmill.stages.spool.", "gristmill.stages.deduplication.")
"""Stages that a run adds where it is split: their attributes are paths and hashes, no settings of the user."""


def configuration(folder: Folder) -> Data:
    """Return the pipeline, its stages and its input; empty if no run has begun to write."""
    runs = list(filter(None, (_run_json(one) for one in _folders(folder))))
    if not runs:
        return {}
    stages = list(_stages(stage for run in runs for stage in run.get("stages", ())))
    first = runs[0]
    return {
        "name": str(first.get("name", "")),
        "wrote": str(first.get("gristmill", "")),
        "pipeline": cut(str(first.get("pipeline") or ""), LONGEST_PIPELINE),
        "stages": stages[:MOST_STAGES],
        "inputs": _inputs(first.get("inputs", ())),
    }


def _folders(folder: Folder) -> list[Folder]:
    """Return the folders with fingerprints: of the phases in order, and the output."""
    phases = takewhile(folder.exists, (f"{PHASES}/{n}" for n in count(1)))
    return [*(folder.sub(phase) for phase in phases), folder]


def _run_json(folder: Folder) -> dict[str, Any] | None:
    if not folder.exists(RUN):
        return None
    try:
        return CommitLog(folder).run_json()
    except OutputDamaged:
        return None


def _stages(stages: Iterable[Data]) -> Iterator[Data]:
    """Yield the stages of the user: those that a run adds at a split are not among them, what they were made of is."""
    for stage in stages:
        attributes = stage.get("attributes")
        if not isinstance(attributes, dict) or not str(stage.get("class", "")).startswith(_OF_A_SPLIT):
            yield stage
        elif isinstance(barrier := attributes.get("barrier"), dict):
            yield {"name": str(stage.get("name", "")).removeprefix(_KEYS_OF), **barrier}


def _inputs(inputs: Any) -> Data:
    """Return the number of input files, the first names, and a hash of all with their versions."""
    digest = hashlib.blake2b(digest_size=16)
    names: list[str] = []
    for name, version in inputs:
        digest.update(f"{name}\0{version}\n".encode("utf-8", "surrogatepass"))
        if len(names) < SHOWN_INPUTS:
            names.append(cut(str(name), 500))
    return {"files": len(inputs), "names": names, "hash": digest.hexdigest()}
