"""The heavy sums of semantic deduplication, by NumPy or by torch: the same bits from either (see `fixed_point`)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Protocol

from gristmill.lazy import np

DEVICES = (None, "cpu", "cuda")


class Nearest(Protocol):
    """Centroids to which points are given."""

    block: int
    """So many points at a time."""

    def labels(self, points: Any) -> np.ndarray:
        """The nearest centroid of each point; of equally near ones the first."""

    def add(self, points: Any) -> None:
        """Count points in for `totals`."""

    def totals(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the points that were added: the sum, as float64, and the number for each centroid."""


class Spread(Protocol):
    """Points, and how far each is from the nearest of those that were chosen."""

    def choose(self, index: int) -> int:
        """Choose one more; gives the sum of all squared distances."""

    def find(self, drawn: int) -> int:
        """The first point at which the sum of the squared distances up to it exceeds a number."""


class Best(Protocol):
    """The most similar ones so far of some rows."""

    def compare(self, at: int, mine: Any, first: int, others: Any, only_before: bool) -> None:
        """Look at ``others``, ranked from ``first`` on, for the rows ``mine``, which begin at the place ``at``.

        ``only_before``: both are the same, and only what is before a row counts for it. Others must come in the order
        of their rank: of equally similar ones the first that is seen stays.
        """

    def found(self) -> np.ndarray:
        """Their ranks; -1 for none."""


class Arithmetic(Protocol):
    """What computes, and where."""

    name: str

    def free_bytes(self) -> int | None:
        """The room for one worker's arrays on a device; None where the memory is the machine's."""

    def peak_bytes(self) -> int:
        """The most that was held on a device."""

    def hold(self, points: np.ndarray) -> Any:
        """Points where they are computed with; slices of them are so too."""

    def nearest(self, centroids: np.ndarray) -> Nearest: ...

    def spread(self, points: np.ndarray) -> Spread: ...

    def best(self, rows: int, dim: int) -> Best: ...


def arithmetic(device: str | None) -> Arithmetic:
    """That of a device; None: a GPU's if torch finds one, else NumPy's."""
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
    """For stages: the arithmetic of a worker, made when it is first needed."""

    device: str | None = None

    def preload(self) -> None:
        if self.device != "cpu" and has_torch():
            import torch  # noqa: F401  # slow to import, and shared by all workers

    @property
    def arithmetic(self) -> Arithmetic:
        found: Arithmetic | None = self.__dict__.get("_arithmetic")
        if found is None:
            found = self.__dict__["_arithmetic"] = arithmetic(self.device)
        return found
