"""A budget in tokens or money, which is never exceeded by what is known before a request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gristmill.llm.errors import BudgetSpent
from gristmill.llm.usage import Prices


@dataclass(frozen=True)
class Budget:
    """The most that all runs with one request cache may use. None: no limit.

    - ``tokens``: tokens of prompts and answers together.
    - ``cost``: in the currency of the model's prices.
    """

    tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("tokens", self.tokens), ("cost", self.cost)):
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise ValueError(f"{name} of a budget must be a number above 0, not {value!r}.")


class Spending:
    """What was spent, and what is reserved for requests that are under way."""

    def __init__(self, budget: Budget, prices: Prices, tokens: int, cost: float) -> None:
        """``tokens`` and ``cost`` (in millionths) were spent by earlier runs."""
        self._budget = budget
        self._prices = prices
        self.tokens = tokens
        self.cost = cost
        self._reserved_tokens = 0
        self._reserved_cost = 0.0
        self._under_way = 0
        self._changed: asyncio.Event = asyncio.Event()

    async def reserve(self, input_tokens: int, output_tokens: int) -> tuple[int, float]:
        """Reserve what a request will use. Raise `BudgetSpent` if it does not fit although nothing is under way."""
        tokens, cost = input_tokens + output_tokens, self._prices.cost(input_tokens, output_tokens)
        while problem := self._problem(tokens, cost):
            if not self._under_way:
                raise BudgetSpent(problem)
            self._changed.clear()
            await self._changed.wait()
        self._reserved_tokens += tokens
        self._reserved_cost += cost
        self._under_way += 1
        return tokens, cost

    def settle(self, reserved: tuple[int, float], input_tokens: int, output_tokens: int) -> None:
        """Replace a reservation by what was used."""
        self._under_way -= 1
        self._reserved_tokens -= reserved[0]
        self._reserved_cost -= reserved[1]
        self.tokens += input_tokens + output_tokens
        self.cost += self._prices.cost(input_tokens, output_tokens)
        self._changed.set()

    def _problem(self, tokens: int, cost: float) -> str:
        most, most_cost = self._budget.tokens, self._budget.cost
        if most is not None and self.tokens + self._reserved_tokens + tokens > most:
            used = f"{self.tokens:,} were used, the next request may need {tokens:,}"
            return f"the budget of {most:,} tokens is spent: {used}"
        if most_cost is not None and self.cost + self._reserved_cost + cost > most_cost * 1e6:
            used = f"{self.cost / 1e6:.4f} were used, the next request may cost {cost / 1e6:.4f}"
            return f"the budget of {most_cost:g} is spent: {used}"
        return ""
