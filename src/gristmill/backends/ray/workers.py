"""The driver's records of the workers and nodes of a run on Ray."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gristmill.backends.engine.protocol import FromWorker, ToWorker, WorkerHandle

if TYPE_CHECKING:
    from gristmill.backends.ray.store import Bulk


@dataclass(eq=False)
class Call:
    """Messages that were sent, until their reports are processed."""

    messages: list[ToWorker]
    bulk: Any = None
    """The object with the payloads of the reply."""
    reply: list[FromWorker] | None = None
    error: BaseException | None = None

    @property
    def is_answered(self) -> bool:
        return self.reply is not None or self.error is not None


@dataclass(eq=False, kw_only=True)
class RayWorkerHandle(WorkerHandle):
    """A worker that is an actor."""

    actor: Any
    take: Any
    """Its method for messages."""
    gpu: float = 0.0
    gpus: tuple[int, ...] = ()
    """How many GPUs it reserves, and which of its node's the scheduler gave it."""
    calls: deque[Call] = field(default_factory=deque)
    """In the order in which they were sent. They are answered in that order, unless one fails."""
    dead: bool = False
    """Its calls fail, and the driver has asked its node for the cause."""
    dead_at: float = 0.0
    bulk_ref: Any = None
    """The payloads that came with the reply that is being processed."""
    bulk: Bulk | None = None
    """The same, once the store holds one of them."""
    payloads: list[Any] | None = None
    """The payloads themselves, if the driver keeps them."""


@dataclass
class RayNode:
    """A node of the cluster that this run uses."""

    index: int
    ident: str
    """Its id in Ray."""
    agent: Any
    facts: Any = None
    free_slots: list[int] = field(default_factory=list)
    reservations: list[Any] = field(default_factory=list)
    reserved: float = 0.0
    asked: float = 0.0
    """Placement groups for its CPUs, how many CPUs were granted, and how many asked for."""
    left: bool = False
    """The run has released what it had there."""
    unseen: int = 0
    """How many times in a row it was not among the nodes that are up."""
    setups: dict[int, int] = field(default_factory=dict)
    """How many times `setup_on_node` of a step was started."""
    size: Any = None
    """CPUs, memory and GPUs as the scheduler knows them."""
    seen: Any = None
    times: int = 0
    """The size as it was seen last, and how many times."""
    checking: bool = False
    """Its agent has not answered yet how much memory is in use."""
    memory: int = 0
    """Bytes that its workers use."""
    worker_bytes: Mapping[int | None, int] = field(default_factory=dict)
    """The same by step (`RunAccount.worker_bytes`)."""
