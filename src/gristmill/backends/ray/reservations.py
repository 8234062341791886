"""The CPUs of each node that Ray keeps for this run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gristmill.backends.ray.calls import BackgroundCalls, Mailbox, in_one_line
from gristmill.backends.ray.workers import RayNode

_NODE_LABEL = "ray.io/node-id"
_ATTEMPTS = 5
_FIRST_PAUSE_S = 1.0
"""Before the second attempt; twice as long before each later one."""
LATE_S = 30.0
"""How long Ray may take for a reservation before the run reports it. A free CPU is reserved within a second."""
_REMOVED = "another job or a user removed it"

Await = Callable[[Any, Callable[[bool], None]], None]


@dataclass(eq=False)
class _Request:
    """CPUs of a node that Ray is asked to reserve."""

    node: RayNode
    cpus: float
    attempts: int = 0
    asked_at: float = field(default_factory=time.monotonic)
    again_at: float | None = None
    """When to ask again, after a failure."""
    reported: bool = False

    def __str__(self) -> str:
        host = self.node.facts.host if self.node.facts is not None else self.node.ident[:8]
        return f"{self.cpus:g} CPUs of node {self.node.index} ({host})"


class Reservations:
    """Placement groups, one for each time that the run may use more of a node.

    Workers take turns on the reserved CPUs as the scheduler decides. A reservation that fails is reported and asked
    for again; until it is granted the run works without it, so other jobs may be given the same CPUs.
    """

    def __init__(
        self, ray: Any, background_calls: BackgroundCalls, mailbox: Mailbox, watch: Await, report: Callable[[str], None]
    ):
        self._ray = ray
        self._background_calls = background_calls
        self._mailbox = mailbox
        self._watch = watch
        self._report = report
        self._open: list[_Request] = []

    def want(self, node: RayNode, cpus: float) -> None:
        """Have as many CPUs of a node reserved. What was reserved before counts."""
        more = round(cpus - node.asked, 4)
        if more > 0:
            node.asked += more
            request = _Request(node, more)
            self._open.append(request)
            self._ask(request)

    def check(self, now: float) -> None:
        """Called now and then: ask again where it is time, and report what takes long."""
        self._open = [request for request in self._open if not request.node.left]
        for request in self._open:
            if request.again_at is not None and now >= request.again_at:
                self._ask(request)
            elif request.again_at is None and not request.reported and now > request.asked_at + LATE_S:
                request.reported = True
                self._report(
                    f"Ray has not reserved {request} within {LATE_S:g} s: other jobs have taken them. The run "
                    "continues and shares them with those jobs until Ray grants the reservation"
                )

    def _ask(self, request: _Request) -> None:
        node = request.node
        request.attempts += 1
        request.asked_at = time.monotonic()
        request.again_at = None

        def reserve() -> None:
            where = [{_NODE_LABEL: node.ident}]
            group = self._ray.util.placement_group([{"CPU": request.cpus}], bundle_label_selector=where)
            node.reservations.append(group)
            self._watch(group, lambda granted: self._mailbox.post(settled, "" if granted else _REMOVED))

        def settled(problem: str, _: BaseException | None) -> None:
            if node.left or request not in self._open:
                return
            if problem:
                self._failed(request, problem)
            else:
                self._granted(request)

        def failed(error: Exception) -> None:
            self._mailbox.post(settled, in_one_line(error))

        self._background_calls.do("reserve CPUs", reserve, failed)

    def _granted(self, request: _Request) -> None:
        self._open.remove(request)
        request.node.reserved += request.cpus
        if request.reported:
            self._report(f"Ray has now reserved {request}")

    def _failed(self, request: _Request, problem: str) -> None:
        request.reported = True
        if request.attempts < _ATTEMPTS:
            pause = _FIRST_PAUSE_S * 2 ** (request.attempts - 1)
            request.again_at = time.monotonic() + pause
            self._report(f"Ray did not reserve {request}: {problem}. Asking again in {pause:g} s")
        else:
            self._open.remove(request)
            self._report(
                f"Ray did not reserve {request} in {_ATTEMPTS} attempts: {problem}. The run continues without them "
                "reserved, so other jobs of the cluster may be given the same CPUs"
            )
