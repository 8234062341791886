"""The options of the Ray Data executor."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.backends.bridge.options import BridgeConfig, check_flag


@dataclass(frozen=True)
class RayDataConfig(BridgeConfig):
    """Options with their defaults."""

    executor = "RayDataExecutor"

    progress: bool = False
    """Whether Ray Data shows its progress bars."""

    def _check(self) -> None:
        super()._check()
        check_flag("progress", self.progress)
