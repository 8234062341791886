"""The loss of a driver: everything under way is gone, and another driver goes on from the log."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gristmill.scheduling.events import Death, Event, NodeLost, Tick, WorkerDied
from gristmill.scheduling.lineage import in_use
from gristmill.scheduling.log import RecordingScheduler, recover

if TYPE_CHECKING:
    from gristmill.scheduling.simulator.world import World


def lose_driver(world: World, events: Sequence[Event]) -> None:
    """The driver is lost while it writes these events to its log, or before it has done all that follows from them."""
    old = world.scheduler
    assert isinstance(old, RecordingScheduler) and world.log is not None, "only a driver with a log can be replaced"
    torn = world.random.random() < 0.3
    if torn:
        line = json.dumps([world.now, [type(x).__name__ for x in events]])
        world.log.write(line[: world.random.randrange(len(line))])
    else:
        commands = world.hear(events)
        for command in commands[: world.random.randrange(len(commands) + 1)]:
            world.carry_out(command)
    world.arriving = []
    world.lose_everyone()
    log = io.StringIO()
    new, again = recover(world.log.getvalue().splitlines(), log)
    assert new.event_hash() == old.event_hash(), "the log does not lead to where the driver was"
    new.check()
    world.scheduler, world.log = new, log
    state = new.state
    world.source_next = state.source_taken
    for command in again:
        world.do(command, again=True)
    left_over = world.data.keys() - in_use(state)
    assert not left_over or state.stopping, f"data not released by the lost driver: {sorted(left_over)[:5]}"
    world.tell(
        [
            *(NodeLost(i) for i in state.nodes if i not in world.nodes),
            *(node for i, node in world.nodes.items() if i not in state.nodes),
            *world.losses.after_restart(),
            *(WorkerDied(w, Death.DRIVER_LOST) for w in state.workers),
            Tick(),
        ]
    )
