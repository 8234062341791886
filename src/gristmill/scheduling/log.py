"""Record and replay a run: the same events always give the same commands.

A log is text, one JSON value per line. The first line holds the format, the steps and the settings. Each later line
holds the time and the events of one call of `Scheduler.handle`. The hash covers the events and the commands.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from typing import Any, TextIO, get_args

from gristmill.scheduling.commands import Command, Solve, StartWorker
from gristmill.scheduling.events import Death, Event, Output, WorkerDied
from gristmill.scheduling.placement import Placement
from gristmill.scheduling.planning import StaffingPlan
from gristmill.scheduling.scheduler import Scheduler
from gristmill.scheduling.settings import Prior, SchedulerConfig, StepSpec

FORMAT = 2
"""Number of the log format. A log of another format is refused: its events may have other names or fields."""


class RecordingScheduler(Scheduler):
    """A scheduler that hashes its events and commands, and writes the events to ``sink`` if there is one."""

    def __init__(self, steps: Sequence[StepSpec], config: SchedulerConfig, sink: TextIO | None = None) -> None:
        super().__init__(steps, config)
        self._sink = sink
        self._hash = hashlib.blake2b(digest_size=16)
        self._write(json.dumps({"format": FORMAT, "steps": [_plain(x) for x in steps], "config": asdict(config)}))

    def handle(self, events: Event | Sequence[Event], now: int) -> list[Command]:
        batch = list(events) if isinstance(events, Sequence) else [events]
        self._write(json.dumps([now, [_encode(e) for e in batch]]))
        commands = super().handle(batch, now)
        self._hash.update(json.dumps([_encode(c) for c in commands]).encode())
        return commands

    def event_hash(self) -> str:
        return self._hash.hexdigest()

    def _write(self, line: str) -> None:
        self._hash.update(line.encode())
        if self._sink is not None:
            self._sink.write(line + "\n")


def replay(lines: Iterable[str]) -> RecordingScheduler:
    """Run a recorded log through a new scheduler; its `event_hash()` is that of the recorded run.

    An incomplete last line is skipped: its events were never handled. Raises `ValueError` for a log of another format.
    """
    it = iter(lines)
    head = json.loads(next(it))
    found = head.get("format", 1)
    if found != FORMAT:
        raise ValueError(
            f"this event log has format {found}, but this version of gristmill reads format {FORMAT}: "
            "replay it with the version that wrote it"
        )
    scheduler = RecordingScheduler([_spec(x) for x in head["steps"]], SchedulerConfig(**head["config"]))
    for line in it:
        try:
            now, events = json.loads(line)
        except json.JSONDecodeError:
            if next(it, None) is not None:
                raise
            break
        scheduler.handle([_decode(e) for e in events], now)
    return scheduler


def _plain(spec: StepSpec) -> dict[str, Any]:
    """The fields of a step. Fields for several units in flight are omitted for other steps."""
    plain = asdict(spec)
    if not spec.in_flight:
        del plain["in_flight"], plain["streams"]
    return plain


def _spec(x: dict[str, Any]) -> StepSpec:
    return StepSpec(**{**x, "prior": None if x["prior"] is None else Prior(**x["prior"])})


def _decode_plan(counts: Any, starts: Any, later: Any, leaves: list[int], *rest: Any) -> StaffingPlan:
    finish, stay, finishes, complete = rest
    return StaffingPlan(dict(counts), _places(starts), _places(later), leaves, finish, stay, dict(finishes), complete)


def _places(starts: Any) -> list[tuple[int, int, Placement]]:
    return [(step, node, Placement(p[1], p[2], tuple(p[3]), p[4])) for step, node, p in starts]


def _encode(value: Any) -> Any:
    """Plain lists for JSON: a dataclass or `NamedTuple` is its name and its fields."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return [_encode(x) for x in value]
    if kind is dict:
        return [[key, _encode(x)] for key, x in value.items()]
    if kind is Solve:
        return ["Solve", value.number]  # the problem follows from the events
    names = _FIELDS.get(kind)
    if names is None:
        if not isinstance(value, tuple) and not is_dataclass(value):
            return value.name if isinstance(value, Enum) else value
        names = _FIELDS[kind] = _names(kind)
    plain = [kind.__name__, *[_encode(getattr(value, name)) for name in names]]
    if kind in _LAST_DEFAULTS and plain[-1] == _LAST_DEFAULTS[kind]:
        plain.pop()
    return plain


def _names(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass, or of a `NamedTuple`: those are made for every unit, at half the cost."""
    if issubclass(kind, tuple):
        names: tuple[str, ...] = kind._fields
        return names
    return tuple(f.name for f in fields(kind))


_LAST_DEFAULTS: dict[type, Any] = {WorkerDied: None, StartWorker: 0}
"""Classes whose last field is omitted if it has this default: logs of runs without units in flight stay the same."""
_PLAIN = frozenset((int, str, bool, type(None)))
_FIELDS: dict[type, tuple[str, ...]] = {}
_EVENTS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Event)}


def _decode(value: list[Any]) -> Any:
    kind = _EVENTS[value[0]]
    arguments = dict(zip((f.name for f in fields(kind)), value[1:], strict=False))
    if "outputs" in arguments:
        arguments["outputs"] = tuple(Output(*o[1:]) for o in arguments["outputs"])
    if "cause" in arguments:
        arguments["cause"] = Death[arguments["cause"]]
    if "plan" in arguments:
        arguments["plan"] = _decode_plan(*arguments["plan"][1:])
    for name in ("gpus", "tasks", "units", "begun"):
        if arguments.get(name) is not None:
            arguments[name] = tuple(arguments[name])
    return kind(**arguments)
