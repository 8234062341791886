"""The client: equal requests, retries, the end of a run, hedging and cancelled batches, with a scripted model."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from gristmill.llm import usage as names
from gristmill.llm.backend import Backend
from gristmill.llm.budget import Budget
from gristmill.llm.cache import RequestCache
from gristmill.llm.client import Client, RequestLimits
from gristmill.llm.errors import AttemptsFailed, BudgetSpent, Refused, TryAgain, Unusable
from gristmill.llm.requests import Answer, Request
from gristmill.llm.usage import Prices, Usage


class Scripted(Backend):
    """Answers with the prompt. ``script`` is called with the prompt and the number of the attempt, and may raise."""

    def __init__(self, script: Callable[[str, int], None] = lambda prompt, attempt: None, wait_s: float = 0.0) -> None:
        self.script = script
        self.wait_s = wait_s
        self.calls: Counter[str] = Counter()
        self.in_flight = self.most = 0

    @property
    def model(self) -> str:
        return "scripted"

    async def complete(self, request: Request) -> Answer:
        self.calls[request.prompt] += 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await asyncio.sleep(self.wait_s)
            self.script(request.prompt, self.calls[request.prompt])
            return Answer(request.prompt.upper(), "stop", 10, 20, self.wait_s)
        finally:
            self.in_flight -= 1


QUICK = RequestLimits(concurrency=8, backoff_s=0.001, max_backoff_s=0.002)


def failing(until: int, **how: Any) -> Callable[[str, int], None]:
    def script(prompt: str, attempt: int) -> None:
        if prompt == "bad" and attempt < until:
            raise TryAgain("busy", **how)

    return script


async def ask(client: Client, *prompts: str) -> list[Any]:
    used = Usage()
    asked = (client.ask(Request(prompt=prompt), used) for prompt in prompts)
    return [*await asyncio.gather(*asked, return_exceptions=True), used.taken()]


def test_equal_requests_are_one_call_also_after_the_end(tmp_path):
    backend = Scripted(wait_s=0.01)

    async def main() -> None:
        client = Client(backend, QUICK, cache=RequestCache(str(tmp_path)))
        *answers, counts = await ask(client, *["a"] * 5, "b")
        assert [answer.text for answer in answers] == ["A"] * 5 + ["B"]
        assert (counts[names.REQUESTS], counts[names.SHARED], counts[names.OUTPUT]) == (2, 4, 40)
        *answers, counts = await ask(client, "a", "b")
        assert [answer.text for answer in answers] == ["A", "B"] and counts == {names.CACHED: 2}
        await client.close()

    asyncio.run(main())
    assert backend.calls == {"a": 1, "b": 1}


def test_what_the_answer_depends_on_is_in_the_key():
    base = Request(messages=[{"role": "user", "content": "x"}], parameters={"seed": 1, "top_p": 0.5})
    same = Request(messages=[{"role": "user", "content": "x"}], parameters={"top_p": 0.5, "seed": 1})
    others = [
        Request(messages=[{"role": "user", "content": "y"}], parameters={"seed": 1, "top_p": 0.5}),
        Request(messages=[{"role": "system", "content": "x"}], parameters={"seed": 1, "top_p": 0.5}),
        Request(prompt="x", parameters={"seed": 1, "top_p": 0.5}),
        Request(messages=base.messages, parameters={"seed": 2, "top_p": 0.5}),
        Request(messages=base.messages, parameters=base.parameters, schema={"type": "object"}),
        Request(messages=base.messages, parameters=base.parameters, sample=1),
    ]
    assert base.key("m") == same.key("m")
    assert len({base.key("m"), base.key("n"), *(one.key("m") for one in others)}) == len(others) + 2


def test_failed_attempts_are_repeated_up_to_the_limit():
    async def main(until: int) -> list[Any]:
        client = Client(Scripted(failing(until), wait_s=0.001), QUICK)
        await ask(client, "good")
        asyncio.get_running_loop().call_later(0.003, asyncio.ensure_future, ask(client, "other"))
        return await ask(client, "bad")

    answer, counts = asyncio.run(main(until=6))
    assert answer.text == "BAD" and counts[names.RETRIES] == 5
    error, counts = asyncio.run(main(until=100))
    assert isinstance(error, AttemptsFailed) and "busy" in str(error)


def test_while_nothing_succeeds_no_request_is_given_up_and_the_run_stops():
    limits = RequestLimits(concurrency=8, backoff_s=0.001, max_backoff_s=0.002, unreachable_s=0.2)

    def script(prompt: str, attempt: int) -> None:
        raise TryAgain("HTTP 500")

    async def main() -> list[Any]:
        return await ask(Client(Scripted(script), limits), *map(str, range(20)))

    *errors, _ = asyncio.run(main())
    assert {type(error) for error in errors} == {Unusable}
    assert "no request has succeeded" in str(errors[0])


def test_the_server_decides_how_long_to_wait():
    async def main() -> float:
        client = Client(Scripted(failing(2, retry_after=0.3, overloaded=True)), QUICK)
        begun = asyncio.get_running_loop().time()
        answer, counts = await ask(client, "bad")
        assert answer.text == "BAD" and counts[names.REFUSED] == 1
        return asyncio.get_running_loop().time() - begun

    assert asyncio.run(main()) >= 0.3


def test_a_refused_request_is_not_repeated_and_costs_only_itself():
    def script(prompt: str, attempt: int) -> None:
        if prompt == "bad":
            raise Refused("too long")

    backend = Scripted(script)
    good, bad, _ = asyncio.run(ask(Client(backend, QUICK), "good", "bad"))
    assert good.text == "GOOD" and isinstance(bad, Refused) and backend.calls["bad"] == 1


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_no_more_requests_are_in_flight_than_allowed(concurrency):
    backend = Scripted(wait_s=0.002)
    client = Client(backend, RequestLimits(concurrency=concurrency))
    asyncio.run(ask(client, *map(str, range(50))))
    assert backend.most == concurrency


def test_a_slow_request_is_hedged_and_the_earlier_answer_is_used():
    def script(prompt: str, attempt: int) -> None:
        return

    class SlowFirst(Scripted):
        async def complete(self, request: Request) -> Answer:
            self.wait_s = 5.0 if not self.calls[request.prompt] else 0.001
            return await super().complete(request)

    async def main() -> list[Any]:
        client = Client(SlowFirst(script), RequestLimits(concurrency=4, hedge_after_s=0.02))
        found = await asyncio.wait_for(ask(client, "a"), 3)
        assert client.slots.used == 0
        return found

    answer, counts = asyncio.run(main())
    assert answer.text == "A" and counts[names.HEDGED] == 1 and counts[names.REQUESTS] == 1


def test_a_cancelled_batch_does_not_take_others_with_it():
    backend = Scripted(wait_s=0.05)

    async def main() -> None:
        client = Client(backend, QUICK)
        first = asyncio.create_task(client.ask(Request(prompt="a"), Usage()))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(client.ask(Request(prompt="a"), Usage()))
        await asyncio.sleep(0.01)
        first.cancel()
        assert (await second).text == "A"
        assert client.slots.used == 0

    asyncio.run(main())


def test_the_budget_counts_all_runs_with_one_cache(tmp_path):
    def client(tokens: int) -> Client:
        cache = RequestCache(str(tmp_path))
        return Client(Scripted(), QUICK, Prices(1.0, 1.0), cache, Budget(tokens=tokens))

    async def main() -> None:
        one = client(1000)
        *found, _ = await ask(one, *(f"a{n}" for n in range(30)))
        answered = sum(isinstance(x, Answer) for x in found)
        assert {type(x) for x in found} == {Answer, BudgetSpent} and answered < 30
        await one.close()
        again = client(1000)
        *found, _ = await ask(again, "something else")
        assert isinstance(found[0], BudgetSpent)
        await again.close()
        more = client(100_000)
        *found, counts = await ask(more, *(f"a{n}" for n in range(30)))
        assert {type(x) for x in found} == {Answer} and counts[names.CACHED] == answered
        await more.close()

    asyncio.run(main())


def test_answers_are_stored_before_their_slot_is_free(tmp_path):
    """So a kill costs at most as many calls as slots."""
    cache = RequestCache(str(tmp_path))
    put, waiting = cache.put, 0

    async def slow_put(key: bytes, answer: Answer, cost: float = 0.0) -> None:
        nonlocal waiting
        waiting += 1
        assert waiting + backend.in_flight <= 4
        await asyncio.sleep(0.002)
        await put(key, answer, cost)
        waiting -= 1

    cache.put = slow_put
    backend = Scripted(wait_s=0.001)
    asyncio.run(ask(Client(backend, RequestLimits(concurrency=4), cache=cache), *map(str, range(60))))
    assert cache.state().answers == 60
    cache.close()


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"concurrency": "many"}, {"max_attempts": 0}, {"backoff_s": 0}, {"hedge_after_s": -1}]
)
def test_limits_that_make_no_sense_are_errors(wrong):
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must be"):
        RequestLimits(**wrong)
