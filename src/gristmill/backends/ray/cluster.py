"""The nodes of a Ray cluster."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_GRANTED, _REMOVED = ("PREPARED", "CREATED"), "REMOVED"
"""States of a placement group, as Ray names them. From `PREPARED` on its resources are not free."""
NODES_S = 1.0
"""How often to ask for the nodes."""


@dataclass(frozen=True)
class NodeState:
    """A node that is up."""

    ident: str
    cpus: float
    gpus: int
    memory: int
    object_store: int
    free_cpus: float
    free_gpus: float
    """The capacity that is not reserved; all of it if Ray does not report that."""


def nodes_of(ray: Any) -> list[NodeState]:
    """The nodes that are up."""
    found = []
    free = _free(ray)
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        has = node["Resources"]
        found.append(
            NodeState(
                node["NodeID"],
                has.get("CPU", 0.0),
                int(has.get("GPU", 0)),
                int(has.get("memory", 0)),
                int(has.get("object_store_memory", 0)),
                free.get(node["NodeID"], has).get("CPU", 0.0),
                free.get(node["NodeID"], has).get("GPU", 0.0),
            )
        )
    return found


def _free(ray: Any) -> dict[str, dict[str, float]]:
    """Return the free resources by node. Ray reports them by node only inside the cluster."""
    with contextlib.suppress(Exception):  # not part of what Ray promises: without it, all is taken to be free
        found: dict[str, dict[str, float]] = ray._private.state.available_resources_per_node()
        return found
    return {}


class NodeWatch:
    """Asks for the cluster's nodes now and then, in a thread: the answer may take a while."""

    def __init__(self, ray: Any, tell: Callable[[list[NodeState]], None]) -> None:
        self._ray = ray
        self._tell = tell
        self.answered_at = time.monotonic()
        """When the cluster answered last."""
        self._stop = threading.Event()
        self._asked: deque[tuple[Any, Callable[[bool], None]]] = deque()
        self._thread = threading.Thread(target=self._work, name="gristmill-nodes", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._stop.wait(NODES_S):
            try:
                nodes = nodes_of(self._ray)
                self.answered_at = time.monotonic()
                self._check_groups()  # after it: what a group has reserved must not count as used by others
            except Exception:  # the cluster does not answer: if that lasts, the driver ends the run
                continue
            if self._stop.is_set():
                return
            if nodes:  # none at all: it is Ray that is not there
                self._tell(nodes)

    def await_group(self, group: Any, settled: Callable[[bool], None]) -> None:
        """Call back, in this thread, with True when a placement group is granted, or False when it is removed."""
        self._asked.append((group, settled))

    def _check_groups(self) -> None:
        for _ in range(len(self._asked)):
            group, settled = self._asked[0]
            state = self._ray.util.placement_group_table(group).get("state", _REMOVED)
            self._asked.popleft()
            if state in _GRANTED or state == _REMOVED:
                settled(state != _REMOVED)
            else:
                self._asked.append((group, settled))

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)
