"""The most similar one of a higher rank: against all similarities at once, and the same however it is computed."""

import numpy as np
import pytest
from semantic_models import best_before as by_brute_force
from semantic_models import planted

from gristmill.stages.deduplication.semantic import arithmetic_numpy
from gristmill.stages.deduplication.semantic.fixed_point import GRID, fine_steps, to_grid
from gristmill.stages.deduplication.semantic.pairwise import RowsInMemory, RowsOnDisk, best_before

PLENTY = 1 << 40


def test_it_agrees_with_brute_force(compute):
    vectors = planted(900, 96, copies=200)
    best, similarity = best_before(RowsInMemory(to_grid(vectors)), 900, 96, 256, PLENTY, compute)
    expected, exact = by_brute_force(vectors)
    assert best[0] == -1
    assert np.isnan(similarity[0])
    assert np.abs(similarity[1:] - exact).max() < 1e-5
    assert (best[1:] == expected).mean() > 0.998  # two that are equally near but for a millionth may change places
    assert (best[700:] == np.arange(200)).all()


@pytest.mark.parametrize(("batch", "memory"), [(1, PLENTY), (7, 1), (64, 60_000), (1024, PLENTY)])
def test_neither_batches_nor_memory_change_a_bit(compute, batch, memory):
    count = 300 if batch == 1 else 500
    points = to_grid(planted(count, 64, copies=100))
    expected = best_before(RowsInMemory(points), count, 64, 128, PLENTY, compute)
    found = best_before(RowsInMemory(points), count, 64, batch, memory, compute)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1], equal_nan=True)


def test_numpy_and_torch_give_the_same_bits():
    pytest.importorskip("torch", reason="the arithmetic of GPUs needs torch")
    from gristmill.stages.deduplication.semantic.arithmetic_numpy import NumpyArithmetic
    from gristmill.stages.deduplication.semantic.arithmetic_torch import TorchArithmetic

    points = to_grid(planted(700, 384, copies=100))
    one = best_before(RowsInMemory(points), 700, 384, 256, PLENTY, NumpyArithmetic())
    other = best_before(RowsInMemory(points), 700, 384, 300, PLENTY, TorchArithmetic("cpu"))
    assert np.array_equal(one[0], other[0])
    assert np.array_equal(one[1], other[1], equal_nan=True)


def test_of_equal_ones_the_first_ranked_counts(compute):
    vectors = planted(40, 16, copies=0)
    vectors[[11, 23, 35]] = vectors[4]
    best, similarity = best_before(RowsInMemory(to_grid(vectors)), 40, 16, 8, PLENTY, compute)
    assert best[[11, 23, 35]].tolist() == [4, 4, 4]
    assert similarity[[11, 23, 35]].tolist() == [1.0, 1.0, 1.0]


def test_in_a_cluster_of_equal_documents_each_is_nearest_to_the_first(compute):
    points = to_grid(np.tile(planted(1, 32, copies=0), (600, 1)))
    best, similarity = best_before(RowsInMemory(points), 600, 32, 100, 50_000, compute)
    assert (best[1:] == 0).all()
    assert (similarity[1:] == 1.0).all()


class Watched(RowsOnDisk):
    largest = 0

    def read(self, start, stop):
        self.largest = max(self.largest, (stop - start) * self.dim * 4)
        return super().read(start, stop)


def test_a_cluster_on_disk_is_never_read_whole(tmp_path, compute):
    points = to_grid(planted(800, 64, copies=300))
    points.tofile(tmp_path / "ranked")
    rows = Watched(str(tmp_path / "ranked"), 64)
    memory = 40_000  # the cluster is of 204,800 bytes
    found = best_before(rows, 800, 64, 50, memory, compute)
    expected = best_before(RowsInMemory(points), 800, 64, 128, PLENTY, compute)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1], equal_nan=True)


def test_the_loaded_part_of_a_cluster_fits_the_memory(tmp_path, monkeypatch, compute):
    monkeypatch.setattr("gristmill.stages.deduplication.semantic.pairwise.COMPARED", 50)
    to_grid(planted(800, 64, copies=300)).tofile(tmp_path / "ranked")
    rows = Watched(str(tmp_path / "ranked"), 64)
    best_before(rows, 800, 64, 50, 40_000, compute)
    assert rows.largest == 150 * 64 * 4  # three batches of 50


def test_pairs_one_by_one_and_all_at_once_give_the_same(monkeypatch):
    """Among many that are nearly as similar as the best, so that the rests decide."""
    rng = np.random.default_rng(5)
    points = to_grid(rng.normal(size=48) + 0.003 * rng.normal(size=(400, 48)))
    compute = arithmetic_numpy.NumpyArithmetic()
    found = []
    for share in (-1.0, 2.0):
        monkeypatch.setattr(arithmetic_numpy, "DENSE", share)
        found.append(best_before(RowsInMemory(points), 400, 48, 64, PLENTY, compute)[0])
    assert np.array_equal(*found)
    dots = points.astype(np.int64) @ points.T.astype(np.int64)
    dots[np.triu_indices(400)] = -(2**60)
    rows = np.arange(1, 400)
    lost = (dots.max(axis=1)[1:] - dots[rows, found[0][1:]]) / (GRID * fine_steps(48)) ** 2
    assert lost.max() < 1e-6
