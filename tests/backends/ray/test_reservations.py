"""CPUs that a run reserves on a real cluster: a reservation that fails is reported and asked for again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from gristmill.backends.ray import reservations
from gristmill.backends.ray.calls import BackgroundCalls, Mailbox
from gristmill.backends.ray.cluster import NodeWatch, nodes_of
from gristmill.backends.ray.reservations import Reservations
from gristmill.backends.ray.workers import RayNode

pytestmark = pytest.mark.timeout(600)
SAFETY_S = 300.0
"""A limit for hangs only."""


@dataclass
class Desk:
    """Reservations on a node of a real cluster, with all that a driver gives them."""

    ray: Any
    node: RayNode
    reservations: Reservations
    background_calls: BackgroundCalls
    mailbox: Mailbox
    lines: list[str] = field(default_factory=list)

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + SAFETY_S
        while not condition() and time.monotonic() < end:
            self.mailbox.listen(time.monotonic() + 0.2)
            self.reservations.check(time.monotonic())
        assert condition(), self.lines


@pytest.fixture
def desk(cluster: Any) -> Iterator[Desk]:
    import ray

    lines: list[str] = []
    background_calls, mailbox = BackgroundCalls(), Mailbox()
    watch = NodeWatch(ray, lambda nodes: None)
    made = Reservations(ray, background_calls, mailbox, watch.await_group, lines.append)
    node = RayNode(0, max(nodes_of(ray), key=lambda node: node.free_cpus).ident, None)
    yield Desk(ray, node, made, background_calls, mailbox, lines)
    node.left = True
    watch.close()
    background_calls.do("give back", lambda: [ray.util.remove_placement_group(group) for group in node.reservations])
    background_calls.close()
    mailbox.close()
    assert background_calls.reports() == []


def test_a_reservation_that_is_granted_is_not_reported(desk: Desk) -> None:
    desk.reservations.want(desk.node, 0.5)
    desk.until(lambda: desk.node.reserved == 0.5)
    desk.reservations.want(desk.node, 0.5)
    assert desk.node.asked == 0.5 and desk.lines == []


def test_a_reservation_that_ray_refuses_is_reported_and_given_up_after_some_attempts(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "_FIRST_PAUSE_S", 0.01)
    desk.node.ident = "no such node!"  # not a label that Ray accepts
    desk.reservations.want(desk.node, 0.5)
    desk.until(lambda: any("in 5 attempts" in line for line in desk.lines))
    assert len(desk.lines) == 5
    assert desk.lines[0].startswith("Ray did not reserve 0.5 CPUs of node 0 (no such ): ")
    assert "Asking again in 0.01 s" in desk.lines[0]
    assert "The run continues without them reserved" in desk.lines[-1]
    assert desk.node.reserved == 0


def test_a_reservation_that_others_remove_is_asked_for_again(desk: Desk) -> None:
    whole = desk.node
    others = desk.ray.util.placement_group(
        [{"CPU": 1.0}], bundle_label_selector=[{"ray.io/node-id": whole.ident}]
    )  # all of the node, so that the reservation waits
    assert others.wait(SAFETY_S)
    desk.reservations.want(whole, 1.0)
    desk.until(lambda: bool(whole.reservations))
    desk.ray.util.remove_placement_group(whole.reservations[0])
    desk.until(lambda: any("removed it. Asking again in 1 s" in line for line in desk.lines))
    desk.ray.util.remove_placement_group(others)
    desk.until(lambda: whole.reserved == 1.0)
    assert len(whole.reservations) == 2
    assert desk.lines[-1].startswith("Ray has now reserved 1 CPUs of node 0 (")


def test_cpus_that_others_have_taken_are_reported_until_they_are_reserved(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "LATE_S", 0.5)
    others = desk.ray.util.placement_group([{"CPU": 1.0}], bundle_label_selector=[{"ray.io/node-id": desk.node.ident}])
    assert others.wait(SAFETY_S)
    desk.reservations.want(desk.node, 1.0)
    desk.until(lambda: bool(desk.lines))
    assert "Ray has not reserved 1 CPUs of node 0" in desk.lines[0] and "other jobs have taken them" in desk.lines[0]
    desk.ray.util.remove_placement_group(others)
    desk.until(lambda: desk.node.reserved == 1.0)
    assert len(desk.lines) == 2 and desk.lines[1].startswith("Ray has now reserved 1 CPUs")


def test_a_call_to_ray_that_fails_is_reported(desk: Desk) -> None:
    desk.background_calls.do("end a worker", lambda: desk.ray.kill("not an actor"))
    desk.until(lambda: bool(desk.background_calls._reports))
    (line,) = desk.background_calls.reports()
    assert line.startswith("Ray could not end a worker: ")
