"""The driver's side of actors: started, told, ended; and how their death is learnt."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gristmill.backends.engine.protocol import Message

if TYPE_CHECKING:
    from gristmill.backends.ray.store import Bulk


@dataclass(eq=False)
class Call:
    """Messages on their way, until their reports are taken in."""

    messages: list[Message]
    bulk: Any = None
    """The object with the payloads of the reply."""
    said: list[Message] | None = None
    error: BaseException | None = None

    @property
    def is_answered(self) -> bool:
        return self.said is not None or self.error is not None


@dataclass(eq=False)
class RayWorkerHandle:
    """A worker, from the order to start it until its end is known."""

    id: int
    step: int
    node: int
    slot: int
    actor: Any
    take: Any
    """Its method for messages."""
    ordered_ns: int
    """When (`time.perf_counter_ns`) it was told to start, or to stop."""
    pid: int = 0
    """0 until its process is there."""
    gpu: float = 0.0
    gpus: tuple[int, ...] = ()
    """How many GPUs it reserves, and which of its node's the scheduler gave it."""
    outbox: list[Message] = field(default_factory=list)
    calls: deque[Call] = field(default_factory=deque)
    """In the order in which they were made, which is that in which they are answered, unless one fails."""
    stop_by: float = 0.0
    """When it must have left, after it was told to stop."""
    said_bye: bool = False
    setup_failed: bool = False
    dead: bool = False
    """Its calls fail; why is being found out."""
    dead_at: float = 0.0
    bulk_ref: Any = None
    """The payloads that came with the reply that is being read."""
    bulk: Bulk | None = None
    """The same, once one of them is noted."""
    payloads: list[Any] | None = None
    """And the payloads themselves, if they are wanted here."""


@dataclass
class RayNode:
    """A node of the cluster that this run uses."""

    index: int
    ident: str
    """As Ray knows it."""
    agent: Any
    facts: Any = None
    free_slots: list[int] = field(default_factory=list)
    reservations: list[Any] = field(default_factory=list)
    reserved: float = 0.0
    asked: float = 0.0
    """Placement groups for its CPUs, how many CPUs were granted, and how many asked for."""
    left: bool = False
    """The run has given back what it had there."""
    unseen: int = 0
    """How often in a row it was not among the nodes that are up."""
    setups: dict[int, int] = field(default_factory=dict)
    """How often `setup_on_node` of a step was begun."""
    size: Any = None
    """CPUs, memory and GPUs as the scheduler was told."""
    seen: Any = None
    times: int = 0
    """The same as it was seen last, and how often."""
    looking: bool = False
    """It was asked what it uses and has not answered yet."""
    memory: int = 0
    """Bytes that its workers use."""
