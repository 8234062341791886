"""Data that lies on the nodes of a virtual cluster and is lost with them, and nodes that change in size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill.scheduling import events as e
from gristmill.scheduling.simulator.draws import mix, uniform
from gristmill.scheduling.simulator.model import SECOND, Data, Job

if TYPE_CHECKING:
    from gristmill.scheduling.simulator.world import World

_LATE_US = 3 * SECOND


class Losses:
    """Where losable data lies, what of it is lost, and how large nodes are now."""

    def __init__(self, world: World, share: float) -> None:
        self.world, self.share = world, share
        self.where: dict[int, int] = {}
        """The node of all data that can be lost."""
        self.gone: dict[int, Data] = {}
        """All data that was ever lost."""
        self.sizes: dict[int, e.NodeResized] = {}
        """Of nodes that are not as they were when they joined."""

    def place(self, data: int, key: int, step: int, node: int) -> bool:
        """Whether the output of a step with this id lies where it was made, and can be lost."""
        if step + 1 == len(self.world.models) or uniform(mix(mix(key, 5_000_011), data)) >= self.share:
            return False
        self.where[data] = node
        return True

    def node_lost(self, node: int) -> list[e.Event]:
        self.sizes.pop(node, None)
        return [e.NodeLost(node), *self._reported(self._lose([i for i, at in self.where.items() if at == node]))]

    def store_lost(self) -> list[e.Event]:
        """The store of a node loses all, or some, of what it has."""
        here = sorted({at for i, at in self.where.items() if i in self.world.data})
        if not here:
            return []
        node = self.world.random.choice(here)
        share = self.world.random.choice([0.2, 1.0, 1.0])
        return self._reported(
            self._lose([i for i, at in self.where.items() if at == node and self.world.random.random() < share])
        )

    def _lose(self, ids: list[int]) -> tuple[int, ...]:
        lost = tuple(i for i in ids if i in self.world.data)
        for i in lost:
            self.gone[i] = self.world.data[i]
            del self.where[i]
        return lost

    def _reported(self, lost: tuple[int, ...]) -> list[e.Event]:
        """Report lost data to the driver at once, late, or only through a worker that cannot load it."""
        if not lost:
            return []
        how = self.world.random.random()
        if how < 0.5:
            return [e.DataLost(lost)]
        if how < 0.8:
            self.world.after(self.world.random.randrange(_LATE_US), e.DataLost(lost))
        return []

    def released(self, data: int) -> None:
        self.where.pop(data, None)

    def cannot_load(self, job: Job) -> tuple[int, ...]:
        """Return the inputs of a unit that are lost. Some units are loaded on arrival, others when they start."""
        return tuple([x.data for x in job.inputs if x.data in self.gone]) if not job.loaded else ()

    def resize(self, node: e.NodeJoined) -> e.Event:
        """Take much of a node away, for a while."""
        r = self.world.random
        cpu = node.cpu * r.randrange(5) // 4
        gpus = tuple([-1 if r.random() < 0.4 else x for x in node.gpus])[: r.randrange(len(node.gpus) + 1) or None]
        size = self.sizes[node.node] = e.NodeResized(node.node, cpu, node.memory * r.randrange(5) // 4, gpus)
        return size

    def restore(self, node: e.NodeJoined) -> e.Event | None:
        return None if self.sizes.pop(node.node, None) is None else self.size(node.node)

    def size(self, node: int) -> e.NodeResized:
        """Return the resources of a node that the run may use now."""
        whole = self.world.nodes[node]
        return self.sizes.get(node) or e.NodeResized(node, whole.cpu, whole.memory, whole.gpus)
