"""Equal keys against a dict, linked sets against plain sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.kernels import signatures
from gristmill.kernels.signatures import first_equal, labels, union_edges


def by_dict(keys: np.ndarray) -> list[int]:
    seen: dict[object, int] = {}
    rows = keys.tolist()
    return [seen.setdefault(tuple(row) if isinstance(row, list) else row, k) for k, row in enumerate(rows)]


@pytest.mark.parametrize("part", [4, 8192])
@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.integers(0, 30) | st.integers((1 << 64) - 9, (1 << 64) - 1)), width=st.sampled_from([1, 2]))
def test_the_first_equal_key_is_that_of_a_dict(part, values, width):
    keys = np.array(values, np.uint64)
    if width == 2:
        keys = np.stack([keys, keys[::-1] % np.uint64(2)], axis=1)
    before, signatures.PART = signatures.PART, part
    try:
        assert first_equal(keys).tolist() == by_dict(keys)
    finally:
        signatures.PART = before


@pytest.mark.parametrize("distinct", [1, 1000, 1 << 62])
@pytest.mark.parametrize("width", [1, 2])
def test_the_first_equal_key_is_found_among_many(distinct, width):
    shape = 200_000 if width == 1 else (200_000, 2)
    keys = np.random.default_rng(1).integers(0, distinct, shape, dtype=np.uint64)
    keys[100_000:] = keys[:100_000]
    assert first_equal(keys).tolist() == by_dict(keys)


def test_keys_that_differ_in_one_half_only_are_not_equal():
    numbers = np.arange(50_000, dtype=np.uint64)
    for keys in (np.stack([numbers, numbers * 0], axis=1), np.stack([numbers * 0, numbers], axis=1)):
        assert first_equal(keys).tolist() == numbers.tolist()


def test_keys_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="rows of two"):
        first_equal(np.zeros((4, 3), np.uint64))


def united(count: int, pairs: list[tuple[int, int]]) -> list[int]:
    sets = [{k} for k in range(count)]
    for a, b in pairs:
        if sets[a] is not sets[b]:
            both = sets[a] | sets[b]
            for member in both:
                sets[member] = both
    return [min(one) for one in sets]


@pytest.mark.parametrize("kind", [np.int64, np.uint32])
@settings(max_examples=100, deadline=None)
@given(data=st.data(), count=st.integers(1, 40))
def test_labels_are_the_smallest_numbers_of_linked_sets_in_any_order(kind, data, count):
    member = st.integers(0, count - 1)
    pairs = data.draw(st.lists(st.tuples(member, member), max_size=60))
    shuffled = data.draw(st.permutations(pairs))
    for given_ in (pairs, [(b, a) for a, b in shuffled]):
        parent = np.arange(count, dtype=kind)
        sides = np.array(given_, np.int64).reshape(-1, 2)
        union_edges(parent, sides[:, 0], sides[:, 1])
        assert (parent <= np.arange(count)).all()
        assert labels(parent).tolist() == united(count, pairs)


def test_a_chain_of_a_million_is_labelled_in_no_time_from_either_end():
    count = 1_000_000
    numbers = np.arange(count - 1)
    for order in (numbers, numbers[::-1]):
        parent = np.arange(count, dtype=np.uint32)
        union_edges(parent, order, order + 1)
        assert not labels(parent).any()
