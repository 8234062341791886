"""Reading the options of a bridge: a dict of the user's into a dataclass, or an error that helps."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from gristmill.backends.engine.executor_config import ConfigError

T = TypeVar("T")


def read_options(kind: type[T], who: str, options: Mapping[str, Any] | None) -> T:
    """``kind`` made of the user's options. A name that it does not know is a `ConfigError`."""
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(f"config is a dict of options, not {options!r}")
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for name in options or {}:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"The options are: {', '.join(names)}."
            raise ConfigError(f"{who} has no option {name!r}. {hint}")
    return kind(**(options or {}))


def check_number(name: str, value: Any, *, above: float = 0.0, most: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not above < value <= most:
        limit = f" and at most {most:g}" if most < math.inf else ""
        raise ConfigError(f"{name} is a number above {above:g}{limit}, not {value!r}")


def check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} is a whole number of at least 1, not {value!r}")


def check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is True or False, not {value!r}")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {' or '.join(map(repr, choices))}, not {value!r}")
