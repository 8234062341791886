"""The arithmetic of semantic deduplication, by NumPy or torch, with the same bits (see `fixed_point`)."""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from typing import Any, Protocol

from gristmill.lazy import np

DEVICES = (None, "cpu", "cuda")


class Nearest(Protocol):
    """Assigns points to centroids."""

    block: int
    """Points at a time."""

    def labels(self, points: Any) -> np.ndarray:
        """Return the nearest centroid of each point; of equally near ones the first."""

    def add(self, points: Any) -> None:
        """Add points to `totals`."""

    def totals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum, as float64, and the number of added points for each centroid."""


class Spread(Protocol):
    """Points, with the distance of each to the nearest chosen one."""

    def choose(self, index: int) -> int:
        """Choose one more point; return the sum of all squared distances."""

    def find(self, drawn: int) -> int:
        """Return the first point at which the sum of squared distances up to it exceeds a number."""


class Best(Protocol):
    """The most similar row of each row so far."""

    def compare(self, at: int, mine: Any, first: int, others: Any, only_before: bool) -> None:
        """Compare the rows ``mine``, which begin at the place ``at``, with ``others``, ranked from ``first`` on.

        ``only_before``: both are the same rows, and each is compared with those before it. Others must come in the
        order of their rank: of equally similar ones the first is kept.
        """

    def found(self) -> np.ndarray:
        """Return the rank of the most similar row of each; -1 for none."""


class Arithmetic(Protocol):
    """Computes on one device."""

    name: str

    def free_bytes(self) -> int | None:
        """Return the memory for one worker's arrays on a device; None if it is the machine's memory."""

    def peak_bytes(self) -> int:
        """Return the most memory that was used on a device."""

    def hold(self, points: np.ndarray) -> Any:
        """Return points on the device; so are their slices."""

    def nearest(self, centroids: np.ndarray) -> Nearest: ...

    def spread(self, points: np.ndarray) -> Spread: ...

    def best(self, rows: int, dim: int) -> Best: ...


def arithmetic(device: str | None) -> Arithmetic:
    """Return the arithmetic of a device; None is a GPU if torch finds one, else NumPy."""
    if device == "cpu" or (device is None and not has_torch()):
        from gristmill.stages.deduplication.semantic.arithmetic_numpy import NumpyArithmetic

        return NumpyArithmetic()
    from gristmill.stages.deduplication.semantic.arithmetic_torch import TorchArithmetic, load_torch

    torch = load_torch()
    if torch.cuda.is_available():
        return TorchArithmetic("cuda")
    if device is None:
        return arithmetic("cpu")
    raise RuntimeError("device='cuda' was asked for, but torch finds no GPU here. device='cpu' runs without one.")


def has_torch() -> bool:
    return find_spec("torch") is not None


class OnDevice:
    """For stages: the arithmetic of a worker, made at its first use."""

    device: str | None = None

    def preload(self) -> None:
        if self.device != "cpu" and has_torch():
            import torch  # noqa: F401  # slow to import, and shared by all workers

    @cached_property
    def arithmetic(self) -> Arithmetic:
        return arithmetic(self.device)
