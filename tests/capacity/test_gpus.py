"""Kinds of GPUs and their relative speeds."""

from __future__ import annotations

import pytest

from gristmill.capacity.errors import CapacityError
from gristmill.capacity.gpus import KINDS, SAME, gpu_kind, kind_of_model, relative_speed


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-32GB", "v100"),
    ],
)
def test_a_model_is_recognised(model: str, kind: str) -> None:
    found = kind_of_model(model)
    assert found is not None
    assert found.name == kind


def test_a_model_that_is_not_in_the_table_is_unknown() -> None:
    assert kind_of_model("NVIDIA GeForce RTX 3060") is None


def test_a_speed_lies_between_the_ratios_of_computing_and_bandwidth() -> None:
    speed = relative_speed(gpu_kind("a100"), gpu_kind("H100"))
    assert (speed.low, speed.high) == (pytest.approx(3350 / 2039), pytest.approx(989 / 312))
    assert speed.usual == pytest.approx((speed.low * speed.high) ** 0.5)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_is_as_fast_as_itself(kind: object) -> None:
    assert relative_speed(kind, kind) == SAME  # type: ignore[arg-type]


def test_an_unknown_kind_is_refused_with_a_suggestion() -> None:
    with pytest.raises(CapacityError, match=r"'h10' is not a kind of GPU.*Did you mean"):
        gpu_kind("h10")
    with pytest.raises(CapacityError, match="It knows t4, v100"):
        gpu_kind("xyzzy")
