"""One request after another through cache, budget, pace, slots and retries, until it has an answer."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from gristmill.llm import usage as names
from gristmill.llm.backend import Backend
from gristmill.llm.budget import Budget, Spending
from gristmill.llm.cache import RequestCache
from gristmill.llm.concurrency import Concurrency
from gristmill.llm.errors import AttemptsFailed, TryAgain, Unusable
from gristmill.llm.limits import Pace, Slots
from gristmill.llm.requests import Answer, Request
from gristmill.llm.usage import Prices, Usage

_TYPICAL_OUTPUT = 256
"""Tokens of an answer, before any has arrived, where the request has no limit."""
MOST_TOKENS = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True)
class RequestLimits:
    """How a model may be used.

    - ``concurrency``: requests in flight, or "auto": found out, up to ``max_concurrency``.
    - ``requests_per_minute``, ``tokens_per_minute``: limits of the server.
    - ``max_attempts``: attempts per request, the first included. Failed ones do not count while the server is away.
    - ``backoff_s``, ``max_backoff_s``: the longest wait after the first failed attempt, and after any.
    - ``unreachable_s``: the run stops when no request succeeded for so long although some were tried.
    - ``hedge_after_s``: send a second, equal request if the first takes longer, and use the earlier answer.
    """

    concurrency: int | str = "auto"
    max_concurrency: int = 256
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_attempts: int = 6
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    unreachable_s: float = 300.0
    hedge_after_s: float | None = None

    def __post_init__(self) -> None:
        whole: dict[str, object] = {"max_concurrency": self.max_concurrency, "max_attempts": self.max_attempts}
        if self.concurrency != "auto":
            whole["concurrency"] = self.concurrency
        for name, count in whole.items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                also = ' or "auto"' if name == "concurrency" else ""
                raise ValueError(f"{name} must be a whole number of at least 1{also}, not {count!r}.")
        above = {
            "requests_per_minute": self.requests_per_minute,
            "tokens_per_minute": self.tokens_per_minute,
            "backoff_s": self.backoff_s,
            "max_backoff_s": self.max_backoff_s,
            "unreachable_s": self.unreachable_s,
            "hedge_after_s": self.hedge_after_s,
        }
        for name, number in above.items():
            if number is not None and (isinstance(number, bool) or not number > 0):
                raise ValueError(f"{name} must be a number above 0, not {number!r}.")

    @property
    def most(self) -> int:
        """The most requests in flight."""
        return self.concurrency if isinstance(self.concurrency, int) else self.max_concurrency


class Client:
    """Asks one model. All its calls are made in one event loop."""

    def __init__(
        self,
        backend: Backend,
        limits: RequestLimits,
        prices: Prices | None = None,
        cache: RequestCache | None = None,
        budget: Budget | None = None,
        seed: int | None = None,
    ) -> None:
        self.backend = backend
        self.limits = limits
        self.prices = prices or Prices()
        self.cache = cache
        self.is_automatic = limits.concurrency == "auto"
        self.found = Concurrency(limits.max_concurrency)
        self.slots = Slots(self.found.limit if self.is_automatic else limits.most)
        self._requests = Pace(limits.requests_per_minute)
        self._tokens = Pace(limits.tokens_per_minute)
        self._spending: Spending | None = None
        if budget is not None:
            self._spending = Spending(budget, self.prices, *(cache.spent() if cache is not None else (0, 0.0)))
        self._flights: dict[bytes, asyncio.Task[Answer]] = {}
        self._random = random.Random(seed)
        self._succeeded_at = 0.0
        """When the last attempt succeeded; 0: none has."""
        self._mean_output: float | None = None
        self._input_ratio = 1.0
        """The mean of tokens of prompts divided by their estimates, not below 1."""
        self._answers = 0

    async def ask(self, request: Request, used: Usage, rank: int = 0) -> Answer:
        """Return the answer to a request. Requests of a lower rank come first.

        Raise `Refused` or `AttemptsFailed` if this request has none, `Unusable` or `BudgetSpent` if no other will.
        """
        key = request.key(self.backend.model)
        while (flight := self._flights.get(key)) is not None:
            try:
                answer = await asyncio.shield(flight)
            except asyncio.CancelledError:
                if not flight.cancelled():
                    raise
                continue  # the batch that sent it was cancelled
            used.add(names.SHARED)
            return answer
        if self.cache is not None and (known := self.cache.get(key)) is not None:
            used.add(names.CACHED)
            return known
        flight = asyncio.get_running_loop().create_task(self._answered(key, request, used, rank))
        self._flights[key] = flight
        try:
            return await flight
        finally:
            del self._flights[key]
            if not flight.done():
                flight.cancel()

    async def flush(self) -> None:
        """Return when all answers so far are on the disk."""
        if self.cache is not None:
            await self.cache.sync()

    async def _answered(self, key: bytes, request: Request, used: Usage, rank: int) -> Answer:
        begun = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(key, request, used, rank)
            except TryAgain as error:
                used.add(names.REFUSED if error.overloaded else names.RETRIES)
                await self._wait_for_next(attempt, begun, error)

    async def _wait_for_next(self, attempt: int, begun: float, error: TryAgain) -> None:
        """Wait until the next attempt, or raise the reason why there is none."""
        now = time.monotonic()
        last = max(begun, self._succeeded_at)
        if attempt >= self.limits.max_attempts and not error.unreachable and self._succeeded_at >= begun:
            raise AttemptsFailed(f"{attempt} attempts failed, the last one: {error}") from None
        if now - last > self.limits.unreachable_s:
            raise Unusable(f"no request has succeeded for {now - last:.0f} s: {error}") from None
        longest = min(self.limits.max_backoff_s, self.limits.backoff_s * 2 ** min(attempt - 1, 30))
        delay = longest * (0.5 + 0.5 * self._random.random())
        await asyncio.sleep(delay if error.retry_after is None else error.retry_after + delay * 0.1)

    async def _attempt(self, key: bytes, request: Request, used: Usage, rank: int) -> Answer:
        estimate = request.estimated_tokens()
        inputs, outputs = math.ceil(estimate * self._input_ratio), self._expected_output(request)
        await self._requests.take(1)
        await self._tokens.take(inputs + outputs)
        reserved = await self._spending.reserve(inputs, outputs) if self._spending is not None else None
        answer: Answer | None = None
        try:
            async with self.slots.held(rank):
                answer = await self._hedged(request, used)
                self._succeeded_at = time.monotonic()
                used.answered(answer, self.prices)
                if self.cache is not None:
                    cost = self.prices.cost(answer.input_tokens, answer.output_tokens)
                    await self.cache.put(key, answer, cost)
        finally:
            tokens = (0, 0) if answer is None else (answer.input_tokens, answer.output_tokens)
            if reserved is not None and self._spending is not None:
                self._spending.settle(reserved, *tokens)
            if answer is not None:
                self._tokens.correct(sum(tokens) - inputs - outputs)
                self._answers += 1
                self._mean_output = _mean(self._mean_output, answer.output_tokens, self._answers)
                self._input_ratio = max(1.0, _mean(self._input_ratio, answer.input_tokens / estimate, self._answers))
        return answer

    def _expected_output(self, request: Request) -> int:
        most = [int(request.parameters[name]) for name in MOST_TOKENS if request.parameters.get(name)]
        if self._spending is not None and most:
            return min(most)  # a budget is not exceeded
        typical = _TYPICAL_OUTPUT if self._mean_output is None else int(self._mean_output) + 1
        return min([typical, *most])

    async def _hedged(self, request: Request, used: Usage) -> Answer:
        if self.limits.hedge_after_s is None:
            return await self._timed(request)
        first = asyncio.ensure_future(self._timed(request))
        tasks = {first}
        try:
            done, _ = await asyncio.wait(tasks, timeout=self.limits.hedge_after_s)
            if not done and self.slots.try_acquire():
                used.add(names.HEDGED)
                tasks.add(asyncio.ensure_future(self._and_release(self._timed(request))))
            return await _first_answer(tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _and_release(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            return await call
        finally:
            self.slots.release()

    async def _timed(self, request: Request) -> Answer:
        is_full = self.slots.used >= self.slots.limit
        begun = time.monotonic()
        refused = False
        try:
            return await self.backend.complete(request)
        except TryAgain as error:
            refused = error.overloaded
            raise
        finally:
            if self.is_automatic and self.found.note(time.monotonic() - begun, refused, is_full):
                self.slots.resize(self.found.limit)

    async def close(self) -> None:
        """Disconnect."""
        await self.backend.close()
        if self.cache is not None:
            self.cache.close()


async def _first_answer(tasks: set[asyncio.Task[Answer]]) -> Answer:
    """Return the first answer. If all tasks fail, raise the error of the last one."""
    pending: set[asyncio.Task[Answer]] = set(tasks)
    while True:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        good = [task for task in done if task.exception() is None]
        if good or not pending:
            return (good or list(done))[0].result()


def _mean(before: float | None, value: float, count: int) -> float:
    return value if before is None else before + (value - before) / min(count, 100)
