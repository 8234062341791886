"""A Ray cluster of several nodes, all of them on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from gristmill.core.environment import reread_environment

NODE = {"node_ip_address": "127.0.0.1", "object_store_memory": 100 << 20}
SETTINGS = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
SETTINGS["RAY_enable_worker_prestart"] = "0"  # processes that no test needs
SETTINGS["RAY_raylet_start_wait_time_s"] = "120"  # 30 s are too few for a busy machine


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> None:
    """The cluster outlives a test here."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and three nodes; two of them have two GPUs, which are only declared."""
    before = dict(os.environ)
    os.environ.update(SETTINGS)
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'gristmill[ray]'")
    from ray.cluster_utils import Cluster
    from tests.backends.slow_starts import allow_slow_starts

    allow_slow_starts()
    reread_environment()  # tests of another module may have run in this process, with tokens
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 1, "include_dashboard": False})
    try:
        for gpus in (2, 2, 0):
            cluster.add_node(**NODE, num_cpus=1, num_gpus=gpus)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="warning")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)
        reread_environment()
