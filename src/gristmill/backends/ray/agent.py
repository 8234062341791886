"""One actor on each node, which reports what only a process of that node can see."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from gristmill.backends.engine import machine
from gristmill.backends.engine.begun import BEGUN_BYTES, read_begun
from gristmill.backends.engine.memory import MemoryWatch, OomKills
from gristmill.backends.engine.protocol import SLOT_BYTES, mark, read_mark
from gristmill.backends.ray.worker import BEGUN_AT, CRASH_BYTES, NOTES_BYTES, SLOTS, Notes


@dataclass(frozen=True)
class NodeFacts:
    """Facts about a node that its agent reports."""

    notes: Notes
    host: str
    gpu_bytes: tuple[int, ...]
    """Memory of each real GPU."""
    memory: int


@dataclass(frozen=True)
class LastMark:
    """The last mark of a worker that died."""

    task: int | None
    stage: int
    setting_up: int | None
    exit_message: str
    """Empty unless it crashed."""
    out_of_memory: bool
    begun: tuple[int, ...] | None
    """The units that it had begun, if it had several in flight; None if there were too many for its notes."""


class NodeAgent:
    """Knows the processes of this run's workers on its node."""

    def __init__(self, memory_limit: int) -> None:
        self._fd = os.memfd_create("gristmill-notes", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, NOTES_BYTES)
        self._slots = mmap.mmap(self._fd, SLOTS * SLOT_BYTES)
        self._memory = MemoryWatch(memory_limit or machine.memory_bytes() * 9 // 10)
        self._oom = OomKills()
        self._ended: set[int] = set()
        """Workers that were killed because they used too much memory."""

    def describe(self) -> NodeFacts:
        sizes = tuple(size for _, size in machine.gpus())
        return NodeFacts(Notes(os.getpid(), self._fd), socket.gethostname(), sizes, self._memory.limit)

    def check(self, pids: Mapping[int, int], now: float) -> tuple[int, dict[int, int], list[int]]:
        """Return the bytes that workers use together and each, and which workers are gone.

        If they use too much, the largest is killed.
        """
        self._oom.check(now)
        worst = self._memory.check(pids, (os.getpid(),), 0)
        if worst is not None and worst not in self._ended:
            self._ended.add(worst)
            self.signal(pids[worst], signal.SIGKILL)
        gone = [worker for worker, pid in pids.items() if not os.path.exists(f"/proc/{pid}")]
        return self._memory.now, self._memory.resident, gone

    def signal(self, pid: int, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)

    def last_mark(self, worker: int, slot: int) -> LastMark:
        task, stage, step = read_mark(self._slots, slot)
        message = os.pread(self._fd, CRASH_BYTES, SLOTS * SLOT_BYTES + slot * CRASH_BYTES).rstrip(b"\0")
        mark(self._slots, slot)  # for the next worker in this slot
        os.pwrite(self._fd, bytes(CRASH_BYTES), SLOTS * SLOT_BYTES + slot * CRASH_BYTES)
        ended = worker in self._ended
        self._ended.discard(worker)
        begun_at = BEGUN_AT + slot * BEGUN_BYTES
        begun = read_begun(os.pread(self._fd, BEGUN_BYTES, begun_at))
        os.pwrite(self._fd, bytes(8), begun_at)
        out_of_memory = ended or (not message and self._oom.take())
        return LastMark(task, stage, step, message.decode(errors="replace"), out_of_memory, begun)
