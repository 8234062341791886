"""Where the data of each live task is: inline with the driver, or in an arena."""

from __future__ import annotations

import os
from typing import Any

from gristmill.backends.engine.payload import size_of
from gristmill.backends.engine.reports import PayloadStore
from gristmill.backends.engine.worker import Limits
from gristmill.backends.local.arena import ArenaWriter, new_arena, punch, read_arena
from gristmill.backends.local.processes import Processes, WorkerProcess

_SOURCE = -1
"""The arena of payloads that the driver itself wrote."""


class ArenaRef:
    """Where the data of a task is."""

    __slots__ = ("arena", "label", "length", "offset", "payload")

    def __init__(self, payload: bytes | None, arena: int, offset: int, length: int, label: str) -> None:
        self.payload = payload
        self.arena = arena
        self.offset = offset
        self.length = length
        self.label = label


class LocalStore(PayloadStore):
    """Knows what lies where, and lets go of it. An arena outlives its worker while something in it is live."""

    def __init__(self, processes: Processes, limits: Limits) -> None:
        self.processes = processes
        self.refs: dict[int, ArenaRef] = {}
        self.arena_bytes = 0
        """Bytes of live payloads in arenas."""
        self._limits = limits
        self._live: dict[int, int] = {}
        """Live payloads in each worker's arena."""
        self._source: ArenaWriter | None = None

    def label(self, task: int) -> str:
        return self.refs[task].label

    def put(self, task: int, label: str, parts: list[Any]) -> int:
        """Keep a payload of the driver's own; its size."""
        size = size_of(parts)
        if size <= self._limits.inline:
            self.refs[task] = ArenaRef(b"".join(parts), _SOURCE, 0, size, label)
            return size
        if self._source is None:
            self._source = ArenaWriter(new_arena(self.processes.on_disk), self._limits.retain)
        offset, length = self._source.write(parts)
        self.refs[task] = ArenaRef(None, _SOURCE, offset, length, label)
        self.arena_bytes += length
        return length

    def add(self, task: int, label: str, w: WorkerProcess, payload: bytes | None, offset: int, length: int) -> bool:
        """Note a payload that a worker made; it cannot be lost, for it outlives its worker."""
        self.refs[task] = ArenaRef(payload, w.id, offset, length, label)
        if payload is None:
            self._live[w.id] = self._live.get(w.id, 0) + 1
            self.arena_bytes += length
        return False

    def take(self, w: WorkerProcess, offset: int, length: int, wanted: bool) -> bytearray | None:
        """Take a payload out of a worker's arena; a copy of it if it is wanted."""
        w.freed.append((offset, length))
        return read_arena(self.processes.arenas[w.id], offset, length) if wanted else None

    def input_for(
        self, w: WorkerProcess, task: int, data: int, start: int, stop: int, skip: int, wanted: tuple[int, ...]
    ) -> tuple[Any, ...]:
        """A task as a worker is told of it; it gets the descriptor of the arena if it has not got it yet."""
        ref = self.refs[data]
        if ref.payload is None and ref.arena not in w.arenas:
            own = self._source.fd if ref.arena == _SOURCE and self._source is not None else None
            self.processes.show_arena(w, ref.arena, self.processes.arenas[ref.arena] if own is None else own)
        return (task, ref.label, ref.payload, ref.arena, ref.offset, ref.length, start, stop, skip, wanted)

    def payload(self, task: int) -> bytes | bytearray:
        """The data of a live task."""
        ref = self.refs[task]
        if ref.payload is not None:
            return ref.payload
        own = self._source.fd if ref.arena == _SOURCE and self._source is not None else None
        return read_arena(self.processes.arenas[ref.arena] if own is None else own, ref.offset, ref.length)

    def release(self, task: int) -> None:
        """The data of a task is needed no more."""
        ref = self.refs.pop(task)
        if ref.payload is not None:
            return
        self.arena_bytes -= ref.length
        if ref.arena == _SOURCE:
            if self._source is not None:
                self._source.free(ref.offset, ref.length)
            return
        producer = self.processes.workers.get(ref.arena)
        if producer is not None:
            producer.freed.append((ref.offset, ref.length))
        else:
            punch(self.processes.arenas[ref.arena], ref.offset, ref.length)
        live = self._live[ref.arena] = self._live[ref.arena] - 1
        if not live:
            del self._live[ref.arena]
            if producer is None:
                self.processes.drop_arena(ref.arena)

    def worker_gone(self, w: WorkerProcess) -> None:
        """Keep of a worker's arena what is live."""
        if w.id not in self.processes.arenas:
            return
        if not self._live.get(w.id):
            self.processes.drop_arena(w.id)
            return
        for offset, length in w.freed:
            punch(self.processes.arenas[w.id], offset, length)

    def close(self) -> None:
        if self._source is not None:
            os.close(self._source.fd)
            self._source = None
