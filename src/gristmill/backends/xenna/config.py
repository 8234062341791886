"""The options of the Xenna executor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gristmill.backends.bridge.options import check_choice, check_count, check_flag, check_number, read_options
from gristmill.backends.bridge.progress import VIEWS


@dataclass(frozen=True)
class XennaConfig:
    """Options with their defaults."""

    logging_interval: float = 60
    """Seconds between two tables of Xenna's, and between two lines of progress; the first line comes after 5 s."""
    view: str = "auto"
    """``auto`` and ``lines`` write a line of progress now and then; ``off`` does not."""
    ignore_failures: bool = False
    execution_mode: str = "streaming"
    cpu_allocation_percentage: float = 0.95
    autoscale_interval_s: float = 180
    max_attempts: int = 3
    address: str | None = None
    """Of the cluster; None is the one this process is connected to, RAY_ADDRESS, or a new one on this machine."""
    gpu_memory_gb: float | None = None
    """Of the smallest GPU, for stages that ask by memory; None looks at the GPUs."""

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> XennaConfig:
        config = read_options(cls, "XennaExecutor", options)
        check_number("logging_interval", config.logging_interval)
        check_choice("view", config.view, VIEWS)
        check_flag("ignore_failures", config.ignore_failures)
        check_choice("execution_mode", config.execution_mode, ("streaming", "batch"))
        check_number("cpu_allocation_percentage", config.cpu_allocation_percentage, most=1)
        check_number("autoscale_interval_s", config.autoscale_interval_s)
        check_count("max_attempts", config.max_attempts)
        if config.gpu_memory_gb is not None:
            check_number("gpu_memory_gb", config.gpu_memory_gb)
        return config
