"""What requests have used: counters for the account of a batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gristmill.llm.requests import Answer

REQUESTS = "requests"
CACHED = "answers from the cache"
SHARED = "answers of equal requests"
RETRIES = "attempts that failed"
REFUSED = "attempts refused by rate limits"
HEDGED = "second requests for slow ones"
REPAIRS = "repairs"
CUT = "answers cut at the most tokens"
INPUT = "input tokens"
OUTPUT = "output tokens"
MILLISECONDS = "milliseconds of requests"
COST = "millionths of the currency"


@dataclass(frozen=True)
class Prices:
    """Prices per million tokens, in any currency."""

    input: float = 0.0
    output: float = 0.0

    def cost(self, input_tokens: float, output_tokens: float) -> float:
        """Return the price of some tokens in millionths of the currency."""
        return input_tokens * self.input + output_tokens * self.output


@dataclass
class Usage:
    """Counts of the requests of one batch."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, n: int = 1) -> None:
        """Count something."""
        self.counts[name] += n

    def answered(self, answer: Answer, prices: Prices) -> None:
        """Count an answer that was paid for."""
        self.add(REQUESTS)
        self.add(INPUT, answer.input_tokens)
        self.add(OUTPUT, answer.output_tokens)
        self.add(MILLISECONDS, round(answer.latency_s * 1000))
        self.add(CUT, answer.finish_reason == "length")
        self.add(COST, round(prices.cost(answer.input_tokens, answer.output_tokens)))

    def taken(self) -> Counter[str]:
        """Return the counts that are not zero."""
        return +self.counts
