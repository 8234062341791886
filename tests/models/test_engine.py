"""The inference engine: batches, order, out of memory, and the search for a budget. The model is real, on the CPU."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from gristmill.errors import ModelError
from gristmill.models.engine import BudgetSearch, InferenceEngine
from gristmill.models.model import Head, Model, Reads, Trunk
from gristmill.models.tokens import TokenLists, cut


class Embedding(Trunk):
    """A trunk of one table, which can run out of memory as a GPU does."""

    def __init__(self, limit: int | None = None) -> None:
        self.device = torch.device("cpu")
        self.max_tokens = 1000
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
    np.testing.assert_allclose(engine.run(tokens), expected(trunk, tokens), atol=1e-5)
    notes = engine.take_notes()
    assert notes["out_of_memory"] >= 1
    assert notes["token_budget"] == engine.token_budget <= 1000
    tried = len(trunk.batches)
    engine.run(tokens)
    assert all(sum(batch) <= 300 for batch in trunk.batches[tried:]), "the smaller budget was forgotten"
    assert "out_of_memory" not in engine.take_notes()


def test_a_text_that_does_not_fit_alone_is_an_error_that_tells_its_length() -> None:
    engine = InferenceEngine(Model(Embedding(limit=50), Sum()))
    with pytest.raises(ModelError, match=r"a text of 80 tokens does not fit .*\n.*max_seq_length"):
        engine.run(TokenLists.from_lists([[1] * 10, [2] * 80]))


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
