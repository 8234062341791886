"""The options that the bridges share, and checks of options."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gristmill.backends.bridge.progress import VIEWS
from gristmill.backends.engine.executor_config import ConfigError, ExecutorConfig


@dataclass(frozen=True)
class BridgeConfig(ExecutorConfig):
    """Options with their defaults."""

    address: str | None = None
    """Address of the cluster; None is the one this process is connected to, RAY_ADDRESS, or a new one on this host."""
    ignore_failures: bool = False
    max_attempts: int = 3
    gpu_memory_gb: float | None = None
    """Memory of the smallest GPU, for stages that ask by memory; None measures it."""
    view: str = "auto"
    """``auto`` and ``lines`` write a line of progress now and then; ``off`` does not."""
    logging_interval: float = 60
    """Seconds between two lines of progress; the first comes after 5 s."""

    def _check(self) -> None:
        check_flag("ignore_failures", self.ignore_failures)
        check_choice("view", self.view, VIEWS)
        check_number("logging_interval", self.logging_interval)
        if isinstance(self.max_attempts, bool) or not isinstance(self.max_attempts, int) or self.max_attempts < 1:
            raise ConfigError(f"max_attempts is a whole number of at least 1, not {self.max_attempts!r}")
        if self.gpu_memory_gb is not None:
            check_number("gpu_memory_gb", self.gpu_memory_gb)


def check_number(name: str, value: Any, *, most: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        limit = f" and at most {most:g}" if most < math.inf else ""
        raise ConfigError(f"{name} is a number above 0{limit}, not {value!r}")


def check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is True or False, not {value!r}")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {' or '.join(map(repr, choices))}, not {value!r}")
