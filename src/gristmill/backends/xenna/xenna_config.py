"""The options of the Xenna executor."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.backends.bridge.options import BridgeConfig, check_choice, check_number


@dataclass(frozen=True)
class XennaConfig(BridgeConfig):
    """Options with their defaults. ``logging_interval`` is also the seconds between two of Xenna's tables."""

    executor = "XennaExecutor"

    execution_mode: str = "streaming"
    cpu_allocation_percentage: float = 0.95
    autoscale_interval_s: float = 180

    def _check(self) -> None:
        super()._check()
        check_choice("execution_mode", self.execution_mode, ("streaming", "batch"))
        check_number("cpu_allocation_percentage", self.cpu_allocation_percentage, most=1)
        check_number("autoscale_interval_s", self.autoscale_interval_s)
