"""Limits of what is under way: slots that are given in order, and requests and tokens per minute."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from types import TracebackType

BURST_S = 1.0
"""The part of a minute's limit that may be used at once."""


class Slots:
    """A number of slots that may change. Those that wait get one in the order of their ranks."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def acquire(self, rank: int = 0) -> None:
        """Take a slot as soon as one is free. Lower ranks come first."""
        if self.try_acquire():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._numbers), future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release()  # it was given at the same time
            raise

    def try_acquire(self) -> bool:
        """Take a slot if one is free."""
        is_free = self.used < self.limit  # then nothing waits: a slot that becomes free is given at once
        self.used += is_free
        return is_free

    def release(self) -> None:
        """Give a slot back."""
        self.used -= 1
        self._give()

    def resize(self, limit: int) -> None:
        """Change the number of slots. None is taken away: fewer are given."""
        self.limit = limit
        self._give()

    def _give(self) -> None:
        while self._waiting and self.used < self.limit:
            *_, future = heapq.heappop(self._waiting)
            if not future.done():
                self.used += 1
                future.set_result(None)

    def held(self, rank: int = 0) -> _Held:
        """Return a context that holds a slot."""
        return _Held(self, rank)


class _Held:
    def __init__(self, slots: Slots, rank: int) -> None:
        self._slots = slots
        self._rank = rank

    async def __aenter__(self) -> None:
        await self._slots.acquire(self._rank)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slots.release()


class Pace:
    """At most so many units per minute, spread evenly. A unit is a request or a token."""

    def __init__(self, per_minute: float | None) -> None:
        self._per_s = None if per_minute is None else per_minute / 60
        self._free = 0.0 if self._per_s is None else max(1.0, self._per_s * BURST_S)
        self._at: float | None = None

    def delay(self, units: float, now: float) -> float:
        """Take units, and return how many seconds to wait before they are used."""
        if self._per_s is None:
            return 0.0
        if self._at is not None:
            self._free = min(max(1.0, self._per_s * BURST_S), self._free + (now - self._at) * self._per_s)
        self._at = now
        self._free -= units
        return max(0.0, -self._free / self._per_s)

    def correct(self, units: float) -> None:
        """Take more units afterwards, or give some back: what was taken was an estimate."""
        self._free -= units

    async def take(self, units: float) -> None:
        """Take units, and wait until they may be used."""
        if delay := self.delay(units, time.monotonic()):
            await asyncio.sleep(delay)
