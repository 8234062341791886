"""Recording and replaying a run: the same events give the same commands, so a log is a proof.

A log is text, one JSON value a line: first the steps and the configuration, then for each call of `Scheduler.handle`
the time and the events. The hash covers the events and the commands.

A line is written before its events are handled, and the commands that follow are done before the next line is written.
So a log is also all that another driver needs to go on where one was lost (`recover`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from typing import Any, TextIO

from gristmill.scheduling import events as _events
from gristmill.scheduling.commands import Abort, Command, Finish, Input, Pull, Quarantine, Release, SetUpNode, Solve
from gristmill.scheduling.config import Prior, SchedulerConfig, StepSpec
from gristmill.scheduling.events import Death, Event, Output
from gristmill.scheduling.placement import Placement
from gristmill.scheduling.planning import Plan
from gristmill.scheduling.scheduler import Scheduler


class RecordingScheduler(Scheduler):
    """A scheduler that hashes all it sees and says, and writes its events to ``sink`` if there is one."""

    def __init__(self, steps: Sequence[StepSpec], config: SchedulerConfig, sink: TextIO | None = None) -> None:
        super().__init__(steps, config)
        self._sink = sink
        self._hash = hashlib.blake2b(digest_size=16)
        self._write(json.dumps({"steps": [asdict(x) for x in steps], "config": asdict(config)}))

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
    """Run a recorded log through a new scheduler; its `event_hash()` is that of the run that was recorded.

    A last line that is not whole was never handled and is passed over.
    """
    return _replay(lines, None)[0]


def recover(lines: Iterable[str], sink: TextIO | None = None) -> tuple[RecordingScheduler, list[Command]]:
    """A scheduler that goes on where the driver that wrote this log was lost, and what has to be done again.

    The commands of the last line may have been done or not; those that do no harm if done twice come back. The source
    is read on after the ``source_taken`` tasks that the log knows; data that is not in `lineage.in_use` is of no
    use, and what is in it and gone has to be told (`DataLost`). What ran is lost with the workers: tell the scheduler
    so next, with a `WorkerDied` for each of ``state.workers`` and `Death.DRIVER_LOST`, for which nobody is blamed, and
    which nodes have come, gone or changed in size meanwhile.
    ``sink`` becomes the new log, and has all of the old one that counts.
    """
    scheduler, last, pull = _replay(lines, sink)
    again: list[Command] = [x for x in last if isinstance(x, (Release, Quarantine, Abort, Finish))]
    s = scheduler.state
    if s.pulling and pull is not None:
        again.append(pull)
    if s.asked is not None:
        again.append(Solve(s.solving, s.asked))
    again += [SetUpNode(n.id, step) for n in s.nodes.values() for step, done in n.set_up.items() if not done]
    return scheduler, again


def _replay(lines: Iterable[str], sink: TextIO | None) -> tuple[RecordingScheduler, list[Command], Pull | None]:
    """Also the commands of the last line and the last time that the source was asked."""
    it = iter(lines)
    head = json.loads(next(it))
    scheduler = RecordingScheduler([_spec(x) for x in head["steps"]], SchedulerConfig(**head["config"]), sink)
    last: list[Command] = []
    pull = None
    for line in it:
        try:
            now, events = json.loads(line)
        except json.JSONDecodeError:
            if next(it, None) is not None:
                raise
            break
        last = scheduler.handle([_decode(e) for e in events], now)
        pull = next((x for x in last if isinstance(x, Pull)), pull)
    return scheduler, last, pull


def _spec(x: dict[str, Any]) -> StepSpec:
    return StepSpec(**{**x, "prior": None if x["prior"] is None else Prior(**x["prior"])})


def _decode_plan(counts: Any, starts: Any, later: Any, leaves: list[int], *rest: Any) -> Plan:
    finish, stay, finishes, complete = rest
    return Plan(dict(counts), _places(starts), _places(later), leaves, finish, stay, dict(finishes), complete)


def _places(starts: Any) -> list[tuple[int, int, Placement]]:
    return [(step, node, Placement(p[1], p[2], tuple(p[3]), p[4])) for step, node, p in starts]


def _encode(value: Any) -> Any:
    """Plain lists for JSON: a dataclass is its name and its fields."""
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
        if not is_dataclass(value):
            return value.name if isinstance(value, Enum) else value
        names = _FIELDS[kind] = tuple(f.name for f in fields(value))
    later = _LATER.get(kind)
    if later is not None and getattr(value, names[-1]) == later:
        names = names[:-1]
    return [kind.__name__, *[_encode(getattr(value, name)) for name in names]]


_PLAIN = frozenset((int, str, bool, type(None)))
_FIELDS: dict[type, tuple[str, ...]] = {}
_LATER: dict[type, object] = {Output: False, Input: ()}
"""What the last field of these is when it is not written: logs and hashes without it are as they always were."""


def _decode(value: list[Any]) -> Any:
    kind = getattr(_events, value[0])
    names = [f.name for f in fields(kind)]
    if len(value) - 1 > len(names):
        raise ValueError(f"the log is newer than this scheduler: {value[0]} has {len(value) - 1} fields")
    arguments = dict(zip(names, value[1:], strict=False))  # fields that came later have defaults
    if "outputs" in arguments:
        arguments["outputs"] = tuple(Output(*o[1:]) for o in arguments["outputs"])
    if "cause" in arguments:
        arguments["cause"] = Death[arguments["cause"]]
    if "plan" in arguments:
        arguments["plan"] = _decode_plan(*arguments["plan"][1:])
    for name in ("gpus", "tasks"):
        if name in arguments:
            arguments[name] = tuple(arguments[name])
    return kind(**arguments)
