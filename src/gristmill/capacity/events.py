"""The units of a run from its event log: what each took, and how large its input was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.scheduling.settings import UNIT


@dataclass(slots=True)
class MeasuredUnit:
    """A finished unit of a step."""

    step: int
    worker: int
    number: int
    """Of the first step: the position of its task in the source. Of others: -1."""
    bytes_in: int
    """Of the data of its task in memory."""
    is_first: bool
    """Whether it is the first unit of this step in its worker."""
    busy_s: float = 0.0
    outputs: int = 0
    bytes_out: int = 0
    size: float = 0.0
    """What its time is taken to be proportional to: bytes of the input file, or in memory."""


def read_units(log: Path) -> list[MeasuredUnit]:
    """Return the finished units of a run without retries, in the order in which they ended."""
    tasks: dict[int, tuple[int, int, int]] = {}
    """By id of the task: its step, its position in the source, its bytes."""
    open_: dict[int, MeasuredUnit] = {}
    begun: set[tuple[int, int]] = set()
    found = []
    given = 0
    with log.open(encoding="utf-8") as lines:
        next(lines, None)
        for line in lines:
            for name, *values in json.loads(line)[1]:
                if name == "SourceGave":
                    for output in values[0]:
                        tasks[output[1]] = 0, given, output[2]
                        given += 1
                elif name in ("UnitFinished", "UnitEmitted"):
                    unit = _of(values, tasks, open_, begun)
                    if name == "UnitFinished":
                        found.append(open_.pop(unit))
    return found


def _of(
    values: Sequence[Any],
    tasks: dict[int, tuple[int, int, int]],
    open_: dict[int, MeasuredUnit],
    begun: set[tuple[int, int]],
) -> int:
    """Add a report of a unit. Return the key of the unit, which is the id of its first task."""
    worker, key, outputs, busy_us = values
    step, number, size = tasks[key]
    unit = open_.get(key)
    if unit is None:
        unit = open_[key] = MeasuredUnit(step, worker, number, size, (step, worker) not in begun)
        begun.add((step, worker))
    unit.busy_s += busy_us / UNIT
    for output in outputs:
        tasks[output[1]] = step + 1, -1, output[2]
        unit.outputs += 1
        unit.bytes_out += output[2]
    return key
