"""Invariants of data that can be lost, which hold after every event. Everything is recounted."""

from __future__ import annotations

from collections import Counter

from gristmill.scheduling.lost_data.records import DataRec
from gristmill.scheduling.lost_data.recovery import waits_for
from gristmill.scheduling.records import TaskState
from gristmill.scheduling.state import State


def check_lost_data(s: State) -> None:
    """Raise `AssertionError` naming the first broken invariant."""
    children = Counter(id(record.parent) for record in s.lost.records.values() if record.parent is not None)
    makes = Counter(id(x) for u in s.lost.rebuilds.values() if u.rebuild is not None for x in u.rebuild.wanted.values())
    live = {t.data for t in s.tasks.values() if t.id not in s.lost.rebuilds}
    for data, record in s.lost.records.items():
        assert record.data == data, f"data {record.data} is noted as {data}"
        assert record.children == children[id(record)], f"data {data}: what was made from it is miscounted"
        assert record.parent is None or s.lost.records.get(record.parent.data) is record.parent, (
            f"data {data} has no origin"
        )
        assert record.live == (data in live), f"data {data} is noted as {'live' if record.live else 'done'} and is not"
        assert record.live or record.children or record.rebuilds, f"data {data} is kept for nothing"
        assert not (record.available and record.released), f"data {data} was released and counts as there"
        kept = record.children and not record.losable
        assert record.released or record.live or record.rebuilds or kept, f"data {data} is not released"
        assert not record.released or not (record.live or kept), f"data {data} was released and is needed"
        if record.stalled:
            assert not record.available, f"units wait for data {data}, which is there"
            assert record.rebuilding or data in s.lost.deferred, f"units wait for data {data}, which no unit makes"
        makers = makes[id(record)]
        assert makers == record.rebuilding, f"data {data} is made again {makers} times at once"
        if record.fetched and record.rebuilding:
            _assert_not_held_up(s, record)
    fetched = sum(record.fetched for record in s.lost.records.values())
    assert s.lost.fetched == fetched, f"{s.lost.fetched} records of data fetched, {fetched} found"
    _check_rebuilds(s)
    _check_stalled(s)


def _assert_not_held_up(s: State, record: DataRec) -> None:
    """Fetched data is made from data that exists or is made again; deferred data would wait for it in turn."""
    data, origin = record.data, record.parent
    while origin is not None and waits_for(record, origin):
        assert origin.rebuilding, f"data {data} is fetched, but data {origin.data}, which it is made from, is deferred"
        record, origin = origin, origin.parent


def _check_rebuilds(s: State) -> None:
    for key, unit in s.lost.rebuilds.items():
        rebuild = unit.rebuild
        assert rebuild is not None and unit.key == key and key in s.tasks, f"unit {key} makes nothing again"
        assert unit in rebuild.parent.rebuilds, f"unit {key} is not known to what it makes something of"
        assert unit.tasks[0].data == rebuild.parent.data, f"unit {key} runs on other data than it should"
        assert rebuild.wanted or unit.tasks[0].state in (TaskState.ASSIGNED, TaskState.SUSPENDED), (
            f"unit {key} makes nothing again"
        )
    for step in s.steps:
        found = sum(unit.step == step.index for unit in s.lost.rebuilds.values())
        assert step.queue.rebuilds == found, f"step {step.index}: units that make data again are miscounted"


def _check_stalled(s: State) -> None:
    lacking = Counter(id(unit) for record in s.lost.records.values() for unit in record.stalled)
    for step in s.steps:
        for key, unit in step.queue.stalled.items():
            assert unit.key == key, f"unit {unit.key} waits as {key}"
            assert unit.missing == lacking[id(unit)] > 0, f"unit {key} waits for {unit.missing} records of data"
        found = sum(len(unit.tasks) for unit in step.queue.stalled.values())
        assert step.queue.stalled_tasks == found, f"step {step.index}: stalled tasks are miscounted"
        for unit in (*step.queue.retries, *step.queue.suspects):
            _assert_there(s, unit.tasks[0].data)
        for t in step.queue.tasks:
            _assert_there(s, t.data)


def _assert_there(s: State, data: int) -> None:
    record = s.lost.records.get(data)
    assert record is None or record.available, f"data {data} is gone and its task waits as if it were not"


def in_use(s: State) -> set[int]:
    """Return the ids of all data that the run still needs, lost or not."""
    return {t.data for t in s.tasks.values() if t.id not in s.lost.rebuilds} | {
        x.data for x in s.lost.records.values() if not x.released
    }
