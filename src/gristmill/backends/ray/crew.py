"""The driver's side of actors: started, told, ended; and how their death is learnt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gristmill.backends.engine.protocol import Message

if TYPE_CHECKING:
    from gristmill.backends.ray.store import Bulk


@dataclass
class RayMember:
    """A worker, from the order to start it until its end is known."""

    id: int
    step: int
    node: int
    slot: int
    actor: Any
    ordered_ns: int
    """When (`time.perf_counter_ns`) it was told to start, or to stop."""
    pid: int = 0
    """0 until its process is there."""
    outbox: list[Message] = field(default_factory=list)
    stop_by: float = 0.0
    """When it must have left, after it was told to stop."""
    said_bye: bool = False
    setup_failed: bool = False
    dead: bool = False
    """Its calls fail; why is being found out."""
    bulk_ref: Any = None
    """The payloads that came with the reply that is being read."""
    bulk: Bulk | None = None
    """The same, once one of them is noted."""


@dataclass
class RayNode:
    """A node of the cluster that this run uses."""

    index: int
    ident: str
    """As Ray knows it."""
    agent: Any
    facts: Any = None
    free_slots: list[int] = field(default_factory=list)
    looking: bool = False
    """It was asked what it uses and has not answered yet."""
    memory: int = 0
    """Bytes that its workers use."""
