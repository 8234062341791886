"""Messages that come late, twice or never: how every worker is accounted for all the same.

Where ``link_timeout_us`` is set, the links between driver and workers are not trusted. The contract:

- A worker numbers its reports 1, 2, 3, ... (``seq``). They are taken in in this order: one that comes again is
  ignored, one that comes early waits for those before it. A death is told by others and has no number.
- The backend numbers what a worker is told (`Dispatch`, `Resume`, `Cancel`, `StopWorker`) in the order of the
  commands; the worker does it in this order, once each.
- From its start on each worker, or its node for it, says now and then how many reports it has sent and how many
  commands have reached it without a gap (`WorkerAlive`).
- If a report or a command is missing for longer than the timeout, or a worker is silent for so long, the worker cannot
  be accounted for: it is killed, and what it had goes elsewhere without blame. That happens only when it is known to be
  dead, so nothing ever runs twice at once.
- The order to kill is repeated at every `Tick` until the death is known. A backend confirms again the death of a worker
  that it no longer knows, and never starts one whose death it was told to bring about.
- Outputs belong to their worker until the report of them is taken in; the backend drops what a dead worker left.

Where it is not set, messages arrive in order and once, have no number, and nothing is counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from gristmill.scheduling.commands import Cancel, Dispatch, KillWorker, Resume, StopWorker
from gristmill.scheduling.crew import kill
from gristmill.scheduling.events import Death, Event, WorkerAlive
from gristmill.scheduling.state import Link, State, WorkerRec

_TO_WORKERS = (Dispatch, Resume, Cancel, StopWorker)


def in_turn(s: State, link: Link, event: Event) -> Iterator[Event]:
    """The reports whose turn it is now that this event has come."""
    link.heard_at = s.now
    number: int = getattr(event, "seq", 0)
    if not number:
        yield event
        return
    if number > link.taken:
        link.early[number] = event
        _promise(s, link, number)
    while link.taken + 1 in link.early:
        link.taken += 1
        link.missing_since = s.now
        yield link.early.pop(link.taken)


def alive(s: State, w: WorkerRec, e: WorkerAlive) -> None:
    link = w.link
    if link is None:
        return
    _promise(s, link, e.sent)
    if e.received > link.received:
        link.received = e.received
        link.sent_at = s.now


def _promise(s: State, link: Link, number: int) -> None:
    if link.promised == link.taken:
        link.missing_since = s.now
    link.promised = max(link.promised, number)


def count_sent(s: State) -> None:
    """After a batch: note what each worker has been told."""
    for command in s.out:
        if isinstance(command, _TO_WORKERS):
            w = s.workers.get(command.worker)
            if w is not None and w.link is not None:
                if w.link.sent == w.link.received:
                    w.link.sent_at = s.now
                w.link.sent += 1


def watch(s: State, timeout_us: int) -> None:
    """Give up the workers that cannot be accounted for, and insist on the end of those that have been."""
    for w in s.workers.values():
        link = w.link
        if link is None:
            continue
        if w.kill_cause is not None:
            s.out.append(KillWorker(w.id))
        elif (
            s.now - link.heard_at > timeout_us
            or (link.promised > link.taken and s.now - link.missing_since > timeout_us)
            or (link.sent > link.received and s.now - link.sent_at > timeout_us)
        ):
            s.decide(f"worker {w.id} is ended: {_why(s, link, timeout_us)}")
            kill(s, w, Death.LINK_LOST)


def _why(s: State, link: Link, timeout_us: int) -> str:
    if s.now - link.heard_at > timeout_us:
        return f"nothing has been heard of it for {(s.now - link.heard_at) / 1e6:.0f} s"
    if link.promised > link.taken:
        return f"its report {link.taken + 1} is lost"
    return f"command {link.received + 1} has not reached it"
