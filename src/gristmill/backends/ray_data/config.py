"""The options of the Ray Data executor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gristmill.backends.bridge.options import check_choice, check_count, check_flag, check_number, read_options
from gristmill.backends.bridge.progress import VIEWS


@dataclass(frozen=True)
class RayDataConfig:
    """Options with their defaults."""

    address: str | None = None
    """Of the cluster; None is the one this process is connected to, RAY_ADDRESS, or a new one on this machine."""
    ignore_failures: bool = False
    max_attempts: int = 3
    gpu_memory_gb: float | None = None
    """Of the smallest GPU, for stages that ask by memory; None looks at the GPUs."""
    progress: bool = False
    """Whether Ray Data shows its progress bars."""
    view: str = "auto"
    """``auto`` and ``lines`` write a line of progress now and then; ``off`` does not."""
    logging_interval: float = 60
    """Seconds between two lines; the first comes after 5 s."""

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> RayDataConfig:
        config = read_options(cls, "RayDataExecutor", options)
        check_flag("ignore_failures", config.ignore_failures)
        check_flag("progress", config.progress)
        check_choice("view", config.view, VIEWS)
        check_number("logging_interval", config.logging_interval)
        check_count("max_attempts", config.max_attempts)
        if config.gpu_memory_gb is not None:
            check_number("gpu_memory_gb", config.gpu_memory_gb)
        return config
