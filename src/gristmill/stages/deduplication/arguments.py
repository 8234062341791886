"""Checks of arguments that several kinds of deduplication have."""

from __future__ import annotations


def check_count(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} must be a whole number above 0, not {value!r}.")


def check_device(device: str | None) -> None:
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"device must be 'cpu', 'cuda' or None, not {device!r}.")
