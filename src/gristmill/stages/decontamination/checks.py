"""Checks of the arguments of a stage."""

from __future__ import annotations


def check_whole(stage: str, least: int, **values: object) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{stage}: {name} is a whole number from {least} on, not {value!r}.")


def check_share(stage: str, **values: object) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"{stage}: {name} is a share, from 0 to 1, not {value!r}.")
