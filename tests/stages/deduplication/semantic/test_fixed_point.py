"""Embeddings as whole numbers: near enough to what they were, and exact from there on."""

import numpy as np
import pytest

from gristmill.stages.deduplication.semantic.fixed_point import EXACT, GRID, coarse, cosine, fine_steps, to_grid

DIMS = (1, 2, 64, 384, 1024, 4096)


@pytest.mark.parametrize("dim", DIMS)
def test_similarities_on_the_grid_are_those_of_the_embeddings(dim):
    rng = np.random.default_rng(dim)
    one, other = rng.normal(size=(2, 200, dim))
    exact = (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    assert np.abs(cosine(to_grid(one), to_grid(other)) - exact).max() < 2e-5
    if dim == 384:
        assert np.abs(cosine(to_grid(one), to_grid(other)) - exact).max() < 5e-6


@pytest.mark.parametrize("dim", DIMS)
def test_no_sum_leaves_the_whole_numbers_that_float32_holds(dim):
    steps = fine_steps(dim)
    rng = np.random.default_rng(dim)
    even, lone = np.ones((1, dim)), np.eye(1, dim)
    # just below the middle between two coarse steps: rests as large as they get, all of one sign
    worst = np.floor(GRID / np.sqrt(dim)) + 0.499
    points = np.concatenate([to_grid(np.concatenate([rng.normal(size=(50, dim)), even, lone]))])
    points = np.concatenate([points, np.full((1, dim), int(worst * steps))])
    whole = coarse(points).astype(np.int64)
    rest = points - whole * steps
    assert np.abs(rest).max() <= steps // 2
    assert (np.abs(whole) @ np.abs(whole).T).max() * 3 < EXACT
    assert (np.abs(whole) @ np.abs(rest).T + np.abs(rest) @ np.abs(whole).T).max() <= EXACT


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_the_same_direction_is_the_same_whatever_the_length(scale):
    row = np.random.default_rng(0).normal(size=(1, 96))
    assert cosine(to_grid(row), to_grid(row * scale)).tolist() == [1.0]
    assert cosine(to_grid(row), to_grid(-row)).tolist() == [-1.0]
