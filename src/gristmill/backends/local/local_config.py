"""The options of the local executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gristmill.backends.engine import machine
from gristmill.backends.engine.executor_config import ConfigError, EngineConfig, size

__all__ = ["ConfigError", "LocalConfig"]


@dataclass(frozen=True)
class LocalConfig(EngineConfig):
    """The options of `EngineConfig`, for this machine."""

    executor: ClassVar[str] = "LocalExecutor"

    @property
    def cpus(self) -> float:
        """CPUs to use: at least one worker's."""
        count = self.num_cpus if self.num_cpus is not None else machine.cpu_count()
        return max(1.0, count * self.cpu_allocation_percentage)

    @property
    def memory_limit_bytes(self) -> int:
        if self.memory_limit is None:
            return machine.memory_bytes() * 9 // 10
        return size("memory_limit", self.memory_limit)

    @property
    def budget_bytes(self) -> int:
        """Bytes of tasks in flight: what was asked for, else a quarter of the memory limit."""
        if self.object_store_memory is None:
            return self.memory_limit_bytes // 4
        return size("object_store_memory", self.object_store_memory)
