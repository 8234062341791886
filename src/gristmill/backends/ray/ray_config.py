"""The options of the Ray executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gristmill.backends.engine.executor_config import ConfigError, EngineConfig, number, size
from gristmill.core.loss import TIMEOUT_S

_STORE_SHARE = 0.4
"""How much of the cluster's object store tasks in flight may take by default; the rest is for copies on their way."""


@dataclass(frozen=True)
class RayConfig(EngineConfig):
    """The options of `EngineConfig`, and where the cluster is.

    ``address`` is what `ray.init` takes: ``"auto"``, ``"host:port"``, ``"ray://host:port"``. None is the cluster to
    which this process is connected, that of RAY_ADDRESS, one that runs on this machine, or else one that is started
    for the run and stopped with it; ``num_cpus`` and ``num_gpus`` are those of the latter. ``memory_limit`` is for
    the workers of one node. ``cluster_timeout_s`` is how long the cluster may give no answer before the run ends. Ray
    itself ends a process that has not reached its cluster for 60 s, so a longer time needs a longer
    RAY_gcs_rpc_server_reconnect_timeout_s in the environment too.
    """

    executor: ClassVar[str] = "RayExecutor"

    address: str | None = None
    cluster_timeout_s: float = TIMEOUT_S

    def _check(self) -> None:
        super()._check()
        if self.address is not None and not (isinstance(self.address, str) and self.address):
            raise ConfigError(f'address is text such as "auto" or "host:6379", not {self.address!r}')
        number("cluster_timeout_s", self.cluster_timeout_s, above=0)
        if self.execution_mode != "streaming":
            raise ConfigError("RayExecutor runs in execution_mode 'streaming' only")

    def budget_of(self, object_store_bytes: int) -> int:
        """Bytes of tasks in flight: what was asked for, else a share of the cluster's object store."""
        if self.object_store_memory is not None:
            return size("object_store_memory", self.object_store_memory)
        return max(1 << 26, int(object_store_bytes * _STORE_SHARE))

    @property
    def node_memory(self) -> int:
        """Bytes that the workers of one node may use; 0 for most of what the node has."""
        return 0 if self.memory_limit is None else size("memory_limit", self.memory_limit)
