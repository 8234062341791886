"""The inference engine: batches, order, out of memory, and the search for a budget. The model is real, on the CPU."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from gristmill.errors import ModelError
from gristmill.models.engine import OUT_OF_MEMORY, BudgetSearch, InferenceEngine, without_waiting
from gristmill.models.model import Head, Model, Reads, Trunk
from gristmill.models.tokens import TokenLists, cut


class Embedding(Trunk):
    """A trunk of one table, which can run out of memory as a GPU does."""

    def __init__(self, limit: int | None = None) -> None:
        self.device = torch.device("cpu")
        self.max_tokens = 1000
        self.vocabulary = 500
        self.batch_tokens = 1000
        self.table = torch.randn(500, 8, generator=torch.Generator().manual_seed(1))
        self.limit = limit
        self.batches: list[list[int]] = []

    def hidden(self, tokens: TokenLists, reads: Reads) -> torch.Tensor:
        self.batches.append(tokens.lengths.tolist())
        if self.limit is not None and len(tokens.ids) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much.")
        return self.table[torch.from_numpy(tokens.ids.astype(np.int64))]


class Sum(Head):
    reads = "all"
    width = 8

    def to(self, device: torch.device, dtype: torch.dtype) -> Sum:
        return self

    def rows(self, hidden: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        ends = hidden.double().cumsum(0)
        ends = torch.cat([torch.zeros(1, 8, dtype=torch.double), ends])[offsets]
        return (ends[1:] - ends[:-1]).float()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> Iterator[np.random.Generator]:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    yield np.random.default_rng(seed)


def texts(rng: np.random.Generator, count: int = 60, longest: int = 90) -> TokenLists:
    return TokenLists.from_lists([rng.integers(0, 500, rng.integers(1, longest)).tolist() for _ in range(count)])


def expected(trunk: Embedding, tokens: TokenLists) -> np.ndarray:
    parts = np.split(tokens.ids.astype(np.int64), tokens.offsets[1:-1])
    return np.stack([trunk.table[torch.from_numpy(part)].double().sum(0).float().numpy() for part in parts])


def test_rows_are_in_the_order_of_the_texts_for_any_budget(rng: np.random.Generator) -> None:
    tokens = texts(rng)
    for budget in (1, 50, 333, 10_000):
        for most in (1, 7, None):
            trunk = Embedding()
            engine = InferenceEngine(Model(trunk, Sum()), max_batch=most, token_budget=budget)
            np.testing.assert_allclose(engine.run(tokens), expected(trunk, tokens), atol=1e-5)
            assert all(sum(batch) <= budget or len(batch) == 1 for batch in trunk.batches)
            assert all(len(batch) <= (most or len(tokens)) for batch in trunk.batches)
            lengths = [length for batch in trunk.batches for length in batch]
            assert lengths == sorted(lengths, reverse=True)


def test_no_texts_give_no_rows() -> None:
    engine = InferenceEngine(Model(Embedding(), Sum()))
    assert engine.run(TokenLists.from_lists([])).shape == (0, 8)


def test_out_of_memory_halves_the_budget_and_keeps_it(rng: np.random.Generator) -> None:
    tokens = texts(rng)
    trunk = Embedding(limit=300)
    engine = InferenceEngine(Model(trunk, Sum()), token_budget=2000)
    task = engine.begin()
    np.testing.assert_allclose(without_waiting(task.run(tokens)), expected(trunk, tokens), atol=1e-5)
    assert task.counters[OUT_OF_MEMORY] >= 1
    assert task.notes["token_budget"] == engine.token_budget <= 1000
    tried = len(trunk.batches)
    engine.run(tokens)
    assert all(sum(batch) <= 300 for batch in trunk.batches[tried:]), "the smaller budget was forgotten"
    assert not engine.begin().counters


def test_tasks_at_the_same_time_give_the_rows_that_they_give_alone(rng: np.random.Generator) -> None:
    """Also while memory runs out, which makes batches smaller in the middle of other tasks."""
    tasks = [texts(rng, count) for count in rng.integers(1, 200, 12).tolist()]
    trunk = Embedding(limit=300)
    engine = InferenceEngine(Model(trunk, Sum()), token_budget=2000)

    async def all_at_once() -> list[np.ndarray]:
        return await asyncio.gather(*(engine.begin_async().run(tokens) for tokens in tasks))

    for tokens, rows in zip(tasks, asyncio.run(all_at_once()), strict=True):
        np.testing.assert_allclose(rows, expected(trunk, tokens), atol=1e-5)
    engine.close()


def test_the_event_loop_is_free_while_batches_are_launched(rng: np.random.Generator) -> None:
    class Slow(Embedding):
        def hidden(self, tokens: TokenLists, reads: Reads) -> torch.Tensor:
            assert not computed.is_set()
            assert others_ran.wait(10), "nothing else ran in the meantime"
            return super().hidden(tokens, reads)

    others_ran, computed = threading.Event(), asyncio.Event()

    async def other() -> None:
        others_ran.set()

    async def both() -> None:
        work = asyncio.create_task(engine.begin_async().run(texts(rng, 3)))
        await asyncio.sleep(0)
        await other()
        await work
        computed.set()

    engine = InferenceEngine(Model(Slow(), Sum()))
    asyncio.run(both())
    engine.close()


def test_a_task_is_alone_while_its_speed_is_measured(rng: np.random.Generator) -> None:
    class Alone(BudgetSearch):
        def after(self, budget: int, tokens: int, seconds: float, device: torch.device) -> int:
            measured.append(tokens)
            assert tokens == sum(sum(batch) for batch in trunk.batches), "other tasks ran at the same time"
            trunk.batches.clear()
            return budget

    measured: list[int] = []
    trunk = Embedding()
    engine = InferenceEngine(Model(trunk, Sum()), token_budget=100, search=Alone())
    tasks = [texts(rng) for _ in range(6)]

    async def all_at_once() -> None:
        await asyncio.gather(*(engine.begin_async().run(tokens) for tokens in tasks))

    asyncio.run(all_at_once())
    assert measured == [len(tokens.ids) for tokens in tasks]
    engine.close()


def test_a_text_that_does_not_fit_alone_is_an_error_that_tells_its_length() -> None:
    engine = InferenceEngine(Model(Embedding(limit=50), Sum()))
    with pytest.raises(ModelError, match=r"a text of 80 tokens does not fit .*\n.*max_seq_length"):
        engine.run(TokenLists.from_lists([[1] * 10, [2] * 80]))


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([[1, 2], [3, 500]], "has the token 500, but the model knows only 0 to 499"),
        ([[1], [-1]], "has the token -1"),
        ([[1], [2] * 1001], "has 1,001 tokens, but the model takes at most 1,000"),
        ([[1], []], "has no tokens"),
    ],
)
def test_tokens_that_the_model_cannot_take_are_an_error_before_it_sees_them(
    tokens: list[list[int]], words: str
) -> None:
    """They come from columns of users, or from the tokenizer of another model. On a GPU they would end the process."""
    trunk = Embedding()
    with pytest.raises(ModelError, match=words):
        InferenceEngine(Model(trunk, Sum())).run(TokenLists.from_lists(tokens))
    assert trunk.batches == []


def test_rows_that_are_not_finite_are_an_error() -> None:
    trunk = Embedding()
    trunk.table[7] = float("inf")
    engine = InferenceEngine(Model(trunk, Sum()))
    engine.run(TokenLists.from_lists([[1, 2], [3]]))
    with pytest.raises(ModelError, match="not finite of 1 of 3 texts"):
        engine.run(TokenLists.from_lists([[1, 2], [3, 4], [7]]))


def test_the_search_doubles_the_budget_until_it_does_not_pay() -> None:
    cpu = torch.device("cpu")
    search = BudgetSearch()
    speed = {1000: 100.0, 2000: 150.0, 4000: 180.0, 8000: 181.0}
    budget, tried = 1000, []
    for _ in range(8):
        tried.append(budget)
        budget = search.after(budget, 100_000, 100_000 / speed[budget], cpu)
    assert tried[:5] == [1000, 1000, 2000, 4000, 8000]
    assert set(tried[5:]) == {4000}
    assert search.after(4000, 100_000, 1.0, cpu) == 4000


def test_a_task_too_small_for_the_budget_measures_nothing() -> None:
    search = BudgetSearch()
    for _ in range(5):
        assert search.after(1000, 3999, 0.1, torch.device("cpu")) == 1000


def test_batches_cover_all_texts_once(rng: np.random.Generator) -> None:
    lengths = np.sort(rng.integers(1, 100, 200))[::-1]
    for first in (0, 17, 200):
        cuts = list(cut(lengths, first, 256, 9))
        assert [place for start, stop in cuts for place in range(start, stop)] == list(range(first, 200))


def test_tokens_survive_arrow_and_slices(rng: np.random.Generator) -> None:
    tokens = texts(rng)
    column = tokens.to_arrow()
    part = TokenLists.from_arrow(column[10:20])
    want = tokens.take(range(10, 20))
    np.testing.assert_array_equal(part.ids, want.ids)
    np.testing.assert_array_equal(part.offsets, want.offsets)
    assert len(TokenLists.from_arrow(column[:0])) == 0
