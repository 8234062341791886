"""How a run in a virtual cluster must end: all items accounted for, and only bad ones quarantined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill.scheduling.simulator.model import Data

if TYPE_CHECKING:
    from tests.simulation.world import CheckedWorld

Items = set[tuple[str, int]]


def expected(world: CheckedWorld) -> tuple[Items, Items]:
    """Labels and items that should be delivered, and source tasks and items that something bad keeps from it."""
    good: Items = set()
    bad: Items = set()
    for number in range(world.sources):
        whole = world.source_data(number)
        labels, bad_items = _fate(world, whole)
        for item in whole.items:
            if bad_items is None or (bad_items and f"{whole.label}#{item}" in bad_items):
                bad.add((whole.label, item))
            else:
                good |= {(label, item) for label in labels}
    return good, bad


def _fate(world: CheckedWorld, source: Data) -> tuple[list[str], set[str] | None]:
    """Return the labels of a source task's final data, and which of its items ("7#2") are bad; None if all are.

    An item that never reaches the step at which it would fail is not bad.
    """
    found = [source]
    bad_items: set[str] = set()
    for step, model in enumerate(world.models):
        if not found:
            break
        bad = model.poison | model.raises | model.hangs | model.stubborn | model.blocks
        if source.label in bad:
            return [], None
        bad_items |= {x for x in bad if x.startswith(f"{source.label}#")}
        found = [out for d in found for out in world.outputs_of(step, d)]
    return [d.label for d in found], bad_items


def assert_nothing_lost(world: CheckedWorld, interrupted: bool = False) -> None:
    """Require that every good item was delivered once, every bad one was quarantined, and nothing is left over.

    If the run was interrupted, some of both may be missing.
    """
    assert world.finished and not world.aborted, f"the run was given up: {world.aborted}"
    good, bad = expected(world)
    twice = [x for x, n in world.delivered.items() if n != 1]
    assert not twice, f"delivered more than once: {twice[:5]}"
    delivered = set(world.delivered)
    assert interrupted or delivered >= good, f"lost: {sorted(good - delivered)[:5]}"
    assert delivered <= good, f"delivered although it should not be: {sorted(delivered - good)[:5]}"
    named = [(step, d.root, item) for step, d in world.quarantined for item in d.items]
    quarantined = {(root, item) for _, root, item in named}
    assert quarantined <= bad, f"quarantined without fault: {sorted(quarantined - bad)[:5]}"
    assert interrupted or quarantined == bad, f"bad items not quarantined: {sorted(bad - quarantined)[:5]}"
    assert interrupted or not world.data, f"data not released: {list(world.data.values())[:5]}"
    assert not world.workers, f"workers live after the end: {sorted(world.workers)[:5]}"
    s = world.scheduler.state
    assert (s.budget.held, s.budget.reserved, len(s.tasks), len(s.workers)) == (0, 0, 0, 0), (
        "the scheduler has something left"
    )
    assert (len(s.lost.records), len(s.lost.rebuilds), s.lost.fetched) == (0, 0, 0), (
        "the scheduler remembers what can be lost"
    )
