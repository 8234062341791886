"""Bad records of an output, by reason, and kept documents: examples from a bounded part of their files."""

from __future__ import annotations

import re
from itertools import count, takewhile

from gristmill.errors import PlanError
from gristmill.ledger.commits import PHASES, RUN
from gristmill.ledger.dropped import records_of
from gristmill.ledger.excluded import QUARANTINE
from gristmill.report.limits import ReportLimits
from gristmill.report.place import Data
from gristmill.report.record import text_and_id
from gristmill.report.spread import spread
from gristmill.storage import Folder

MOST_REASONS = 20
EXAMPLES = 3
LONGEST_RAW = 300
BYTES_OF_A_FILE = 1 << 16
KEPT_FILES = 4
_PART = re.compile(r"part-.*\.(?:jsonl(?:\.\w+)?|parquet|tar)")
_NUMBER = re.compile(r"\d+")


def quarantine_examples(folder: Folder, limits: ReportLimits) -> list[Data]:
    """Return examples of bad records by reason."""
    phases = takewhile(folder.exists, (f"{PHASES}/{n}" for n in count(1)))
    places = [folder, *(folder.sub(phase) for phase in phases)]
    files = [(place, f"{QUARANTINE}/{name}") for place in places for name in place.names(QUARANTINE)]
    found: dict[str, list[Data]] = {}
    for place, name in spread(files, limits.files):
        try:
            for record in records_of(place, name, BYTES_OF_A_FILE):
                reason = str(record.get("reason", ""))[:500]
                group = _NUMBER.sub("N", reason)
                if group not in found and len(found) >= MOST_REASONS:
                    continue
                examples = found.setdefault(group, [])
                if len(examples) < EXAMPLES:
                    examples.append(_example(record, reason))
        except (PlanError, FileNotFoundError):  # the run may be writing it, or removing it
            continue
    return [{"reason": reason, "examples": examples} for reason, examples in sorted(found.items())]


def _example(record: Data, reason: str) -> Data:
    raw = str(record.get("raw", ""))
    return {
        "file": str(record.get("file", ""))[:500],
        "position": record.get("position"),
        "stage": str(record.get("stage", ""))[:300],
        "reason": reason,
        "text": raw[:LONGEST_RAW],
        "characters": len(raw),
    }


def kept_examples(folder: Folder) -> list[Data]:
    """Return the first kept document of a few files."""
    names = [name for name in folder.names() if _PART.fullmatch(name)] if folder.exists(RUN) else []
    found = []
    for name in spread(names, KEPT_FILES):
        try:
            record = next(records_of(folder, name, BYTES_OF_A_FILE), None)
        except (PlanError, FileNotFoundError):
            continue
        if record is not None:
            found.append(text_and_id(record))
    return found
