"""Slots in order, pace, the search for the best number in flight, and budgets."""

from __future__ import annotations

import asyncio
import heapq
import math
import random

import pytest

from gristmill.llm.budget import Budget, Spending
from gristmill.llm.concurrency import Concurrency
from gristmill.llm.errors import BudgetSpent
from gristmill.llm.limits import Pace, Slots
from gristmill.llm.usage import Prices


def test_slots_are_given_in_the_order_of_ranks():
    order: list[int] = []

    async def main() -> None:
        slots = Slots(1)

        async def one(rank: int) -> None:
            async with slots.held(rank):
                order.append(rank)
                await asyncio.sleep(0)

        await asyncio.gather(*(one(rank) for rank in (5, 3, 4, 1, 2)))
        assert slots.used == 0

    asyncio.run(main())
    assert order == [5, 1, 2, 3, 4]


def test_no_slot_is_lost_by_a_cancelled_request():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    number = random.Random(seed)

    async def main() -> None:
        slots = Slots(3)
        most = 0

        async def one(rank: int) -> None:
            nonlocal most
            async with slots.held(rank):
                most = max(most, slots.used)
                await asyncio.sleep(number.random() * 0.002)

        tasks = [asyncio.create_task(one(number.randrange(5))) for _ in range(200)]
        for _ in range(60):
            await asyncio.sleep(0.0005)
            number.choice(tasks).cancel()
            slots.resize(number.randrange(1, 6))
        slots.resize(3)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert slots.used == 0 and most <= 5
        await asyncio.wait_for(slots.acquire(), 1)

    asyncio.run(main())


def test_a_slot_that_was_given_to_a_request_cancelled_at_the_same_time_is_free():
    async def main() -> None:
        slots = Slots(1)
        await slots.acquire()
        waiting = asyncio.create_task(slots.acquire())
        await asyncio.sleep(0)
        slots.release()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert slots.used == 0 and slots.try_acquire()

    asyncio.run(main())


def test_the_pace_is_even_and_corrections_count():
    pace = Pace(600)  # 10 per second
    delays = [pace.delay(1, 0.0) for _ in range(30)]
    assert delays[:10] == [0.0] * 10, "a second's worth may come at once"
    assert delays[-1] == pytest.approx(2.0)
    assert pace.delay(1, 2.0) == pytest.approx(0.1)
    pace.correct(-50)
    assert pace.delay(1, 2.0) == 0
    assert Pace(None).delay(1e9, 0.0) == 0


def test_requests_per_minute_hold_over_any_minute():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    number = random.Random(seed)
    pace, now, sent = Pace(90), 0.0, []
    for _ in range(2000):
        now += number.expovariate(5)
        sent.append(now + pace.delay(1, now))
    sent.sort()
    for i, at in enumerate(sent):
        in_minute = sum(1 for other in sent[i : i + 120] if other < at + 60)
        assert in_minute <= 90 + 2


def simulated(found: Concurrency, serves, latency, answers: int, number: random.Random) -> list[int]:
    """Play requests in virtual time: ``serves`` are answered at once, the others wait. Return the limits over time."""
    now, free, flying, waiting, limits = 0.0, serves, [], [], []
    count = 0

    def send() -> None:
        nonlocal free
        if free:
            free -= 1
            heapq.heappush(flying, (now + latency(), now))
        else:
            waiting.append(now)

    for _ in range(found.limit):
        send()
    in_flight = found.limit
    while count < answers:
        now, begun = heapq.heappop(flying)
        free += 1
        in_flight -= 1
        count += 1
        if waiting:
            heapq.heappush(flying, (now + latency(), waiting.pop(0)))
            free -= 1
        found.note(now - begun, refused=False, is_full=True)
        limits.append(found.limit)
        while in_flight < found.limit:
            send()
            in_flight += 1
    return limits


@pytest.mark.parametrize(("serves", "low", "high"), [(20, 14, 60), (100, 60, 300), (10_000, 200, 256)])
def test_the_number_in_flight_follows_what_the_server_can_do(serves, low, high):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    number = random.Random(seed)

    def latency() -> float:
        return 2.0 if number.random() < 0.05 else math.exp(number.gauss(math.log(0.2), 0.4))

    limits = simulated(Concurrency(256), serves, latency, 20_000, number)
    late = sorted(limits[10_000:])
    assert low <= late[len(late) // 2] <= high


def test_a_server_without_limit_gets_the_most_within_a_thousand_answers():
    number = random.Random(1)
    limits = simulated(Concurrency(256), 10_000, lambda: math.exp(number.gauss(-1.6, 0.4)), 3000, number)
    assert limits[1000] == 256


def test_refusals_reduce_it_and_a_few_at_random_do_not():
    found = Concurrency(256, first=256)
    for n in range(10_000):
        found.note(0.2, refused=n % 50 == 0, is_full=True)
    assert found.limit == 256
    for n in range(3000):
        found.note(0.2, refused=n % 5 == 0, is_full=True)
    assert found.limit < 100


def test_it_does_not_grow_while_slots_stay_free():
    found = Concurrency(256)
    for _ in range(5000):
        found.note(0.2, refused=False, is_full=False)
    assert found.limit == 16


def test_a_budget_is_never_exceeded_and_used_up():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    number = random.Random(seed)

    async def main() -> tuple[int, int]:
        spending = Spending(Budget(tokens=10_000), Prices(), 0, 0.0)
        stopped = 0

        async def one() -> None:
            nonlocal stopped
            try:
                reserved = await spending.reserve(50, 100)
            except BudgetSpent:
                stopped += 1
                return
            await asyncio.sleep(number.random() * 0.001)
            spending.settle(reserved, 40, number.randrange(101))
            assert spending.tokens <= 10_000

        await asyncio.gather(*(one() for _ in range(400)))
        return spending.tokens, stopped

    tokens, stopped = asyncio.run(main())
    assert 10_000 - 150 < tokens <= 10_000 and stopped


def test_a_budget_of_money_counts_prices():
    spending = Spending(Budget(cost=1.0), Prices(input=2.0, output=10.0), 0, 0.9e6)
    with pytest.raises(BudgetSpent, match="the budget of 1 is spent"):
        asyncio.run(spending.reserve(10_000, 9_000))
    asyncio.run(spending.reserve(1000, 1000))


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"cost": -1}, {"tokens": True}])
def test_a_budget_below_zero_is_an_error(wrong):
    with pytest.raises(ValueError, match="of a budget must be a number above 0"):
        Budget(**wrong)
