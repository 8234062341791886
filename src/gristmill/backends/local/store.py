"""Where the data of each live task is: inline with the driver, or in an arena."""

from __future__ import annotations

import os
from typing import Any

from gristmill.backends.engine.payload import Payload
from gristmill.backends.engine.protocol import TaskInput, TaskOutput
from gristmill.backends.engine.reports import PayloadStore
from gristmill.backends.engine.worker import Limits
from gristmill.backends.local.arena import ArenaWriter, new_arena, punch, read_arena
from gristmill.backends.local.processes import Processes, WorkerProcess

_SOURCE = -1
"""The arena of payloads that the driver itself wrote."""


class LocalStore(PayloadStore):
    """Payloads inline or in arenas. An arena outlives its worker while it holds a live payload."""

    driver_source = _SOURCE

    def __init__(self, processes: Processes, limits: Limits) -> None:
        """The source of a payload is the worker whose arena holds it."""
        super().__init__(limits.inline)
        self.processes = processes
        self.arena_bytes = 0
        """Bytes of live payloads in arenas."""
        self._retain = limits.retain
        self._live: dict[int, int] = {}
        """Live payloads in each worker's arena."""
        self._source: ArenaWriter | None = None

    def put_large(self, task: int, label: str, parts: list[Any], size: int) -> None:
        if self._source is None:
            self._source = ArenaWriter(new_arena(self.processes.on_disk), self._retain)
        offset, length = self._source.write(parts)
        self.refs[task] = TaskInput(task, label, None, _SOURCE, offset, length)
        self.arena_bytes += length

    def add(self, task: int, w: WorkerProcess, output: TaskOutput) -> bool:
        """Keep a payload that a worker made. It cannot be lost: it outlives its worker."""
        self.refs[task] = TaskInput(task, output.label, output.payload, w.id, output.offset, output.length)
        if output.payload is None:
            self._live[w.id] = self._live.get(w.id, 0) + 1
            self.arena_bytes += output.length
        return False

    def take(self, w: WorkerProcess, offset: int, length: int, wanted: bool) -> Payload | None:
        """Take a payload out of a worker's arena; a copy of it if it is wanted."""
        w.freed.append((offset, length))
        return read_arena(self.processes.arenas[w.id], offset, length) if wanted else None

    def input_for(self, w: WorkerProcess, data: int) -> TaskInput:
        """Return the input; the worker is sent the descriptor of the arena if it does not have it."""
        ref = self.refs[data]
        if ref.payload is None and ref.source not in w.arenas:
            self.processes.show_arena(w, ref.source, self._arena(ref))
        return ref

    def _arena(self, ref: TaskInput) -> int:
        """The descriptor of the arena that holds a payload."""
        if ref.source == _SOURCE and self._source is not None:
            return self._source.fd
        return self.processes.arenas[ref.source]

    def read(self, ref: TaskInput) -> Payload:
        return read_arena(self._arena(ref), ref.offset, ref.length)

    def release(self, task: int) -> None:
        ref = self.refs.pop(task)
        if ref.payload is not None:
            return
        self.arena_bytes -= ref.length
        arena = ref.source
        if arena == _SOURCE:
            if self._source is not None:
                self._source.free(ref.offset, ref.length)
            return
        producer = self.processes.workers.get(arena)
        if producer is not None:
            producer.freed.append((ref.offset, ref.length))
        else:
            punch(self.processes.arenas[arena], ref.offset, ref.length)
        live = self._live[arena] = self._live[arena] - 1
        if not live:
            del self._live[arena]
            if producer is None:
                self.processes.drop_arena(arena)

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
