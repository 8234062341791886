"""K-means: clusters that are there are found, and the same centroids come out however it is computed."""

import numpy as np
import pytest
from semantic_models import planted, unit

from gristmill.stages.deduplication.semantic import arithmetic_numpy, arithmetic_torch, kmeans
from gristmill.stages.deduplication.semantic.arithmetic_numpy import NumpyArithmetic
from gristmill.stages.deduplication.semantic.cluster import distance
from gristmill.stages.deduplication.semantic.fixed_point import GRID, coarse, to_grid
from gristmill.stages.deduplication.semantic.kmeans import fit, mixed, smallest


def points_of(count=2000, dim=48, groups=8):
    return to_grid(planted(count, dim, copies=0, groups=groups))


def fitted(points, compute, clusters=8, seed=1, init="k-means++", max_iter=50, tol=0.0):
    return fit(coarse(points), clusters, seed, max_iter, tol, init, compute)


def test_groups_that_lie_apart_become_clusters(compute):
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(6, 40))
    group = rng.integers(6, size=1200)
    points = to_grid(centres[group] + 0.1 * rng.normal(size=(1200, 40)))
    found = fitted(points, compute, clusters=6)
    labels = compute.nearest(found.centroids).labels(coarse(points))
    assert found.converged
    assert all(len(set(labels[group == g].tolist())) == 1 for g in range(6))
    assert len(set(labels.tolist())) == 6


def test_each_round_is_that_of_plain_k_means(compute):
    points = points_of(500)
    start = fitted(points, compute, max_iter=1).centroids
    rows = coarse(points).astype(np.int64)
    squares = ((rows[:, None, :] - start[None, :, :].astype(np.int64)) ** 2).sum(axis=2)
    labels = squares.argmin(axis=1)
    means = np.stack([np.rint(rows[labels == c].mean(axis=0)) for c in range(8)])
    assert np.array_equal(fitted(points, compute, max_iter=2).centroids, means)


@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_block_sizes_do_not_change_a_bit(compute, init, monkeypatch):
    points = points_of()
    expected = fitted(points, compute, init=init)
    for module in (arithmetic_numpy, arithmetic_torch):
        monkeypatch.setattr(module, "SCORE_BYTES", 37 * 4 * 8)
    found = fitted(points, compute, init=init)
    assert np.array_equal(found.centroids, expected.centroids)
    assert found.iterations == expected.iterations


def test_numpy_and_torch_give_the_same_centroids():
    pytest.importorskip("torch", reason="the arithmetic of GPUs needs torch")
    points = points_of(dim=384)
    one = fitted(points, NumpyArithmetic())
    other = fitted(points, arithmetic_torch.TorchArithmetic("cpu"))
    assert np.array_equal(one.centroids, other.centroids)


def test_another_seed_starts_elsewhere():
    points = points_of()
    one, other = (fitted(points, NumpyArithmetic(), seed=seed, max_iter=1) for seed in (1, 2))
    assert not np.array_equal(one.centroids, other.centroids)


def test_rounds_end_when_centroids_hardly_move():
    points = points_of(groups=40)
    loose, tight = (fitted(points, NumpyArithmetic(), tol=tol) for tol in (0.1, 0.0))
    assert loose.converged
    assert loose.iterations < tight.iterations
    assert not fitted(points, NumpyArithmetic(), max_iter=1).converged


def test_fewer_documents_than_clusters_make_fewer_clusters(compute):
    assert len(fitted(points_of(5), compute).centroids) == 5


def test_documents_that_are_all_equal_are_one_cluster(compute):
    points = np.tile(points_of(1), (50, 1))
    found = fitted(points, compute)
    assert set(compute.nearest(found.centroids).labels(coarse(points)).tolist()) == {0}


@pytest.mark.parametrize("hashed", [kmeans.HASHED, 7])
def test_the_smallest_hashes_are_as_many_as_are_wanted(hashed, monkeypatch):
    monkeypatch.setattr(kmeans, "HASHED", hashed)
    for seed in range(5):
        hashes = np.sort(mixed(np.arange(1000), seed))
        assert all(smallest(1000, wanted, seed) == hashes[wanted - 1] for wanted in (1, 2, 500, 999, 1000))


def test_many_hashes_with_the_same_beginning_are_ordered():
    hashes = np.sort(mixed(np.arange(300_000), 3))
    assert all(smallest(300_000, wanted, 3) == hashes[wanted - 1] for wanted in (1, 1000, 1001, 1002, 299_999))


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_distances_to_centroids_follow_their_definition(metric):
    vectors = planted(300, 48, copies=0)
    points = to_grid(vectors)
    centroids = fitted(points, NumpyArithmetic()).centroids
    labels = NumpyArithmetic().nearest(centroids).labels(coarse(points))
    plain = centroids[labels] / GRID
    if metric == "l2":
        expected = np.linalg.norm(unit(vectors) - plain, axis=1)
    else:
        expected = 1 - (unit(vectors) * unit(plain)).sum(axis=1)
    assert np.abs(distance(points, centroids[labels], metric) - expected).max() < 1e-5


def test_a_point_that_is_chosen_is_not_drawn_again(compute):
    points = coarse(points_of(30))
    spread = compute.spread(points)
    spread.choose(0)
    total = spread.choose(17)
    squares = ((points[:, None].astype(np.int64) - points[[0, 17]]) ** 2).sum(axis=2).min(axis=1)
    assert total == squares.sum()
    drawn = {spread.find(x) for x in [0, total - 1, *np.cumsum(squares)[:-1].tolist()]}
    assert drawn == set(range(30)) - {0, 17}
