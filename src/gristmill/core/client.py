"""`RayClient`: a Ray cluster for as long as it is needed."""

from __future__ import annotations

import atexit
import math
import os
import secrets
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import Any, Self

from gristmill.core import clusters
from gristmill.core.clusters import LOOPBACK, RayClientError
from gristmill.core.environment import (
    ADDRESS,
    AUTH_MODE,
    LIMITS,
    ONE_MACHINE,
    TOKEN,
    has_token,
    reread_environment,
    set_variables,
)
from gristmill.core.head_node import HeadNode
from gristmill.core.loss import forget_at_exit
from gristmill.sizes import parse_size

__all__ = ["RayClient", "RayClientError"]

_DISCONNECT_S = 10.0


@dataclass(eq=False)
class RayClient:
    """A Ray cluster for as long as it is needed: one that runs already, or a new one on this machine.

        with RayClient(num_cpus=8):
            pipeline.run(RayExecutor())

    `start` attaches to the cluster of ``address``, of RAY_ADDRESS, or of the last ``ray start`` on this machine if it
    lives; then the other arguments have no effect, and `stop` stops nothing. Otherwise it starts a head node, which
    listens on loopback only and asks for a token where Ray can (RAY_AUTH_MODE=disabled turns that off). While the
    client is started, RAY_ADDRESS is the address of the cluster, so that all code that connects to Ray in this process,
    or in processes it starts, finds it.

    `stop` ends exactly the processes that `start` has started and removes their folder. The same happens when this
    process ends, in whatever way, and when `start` fails or is interrupted.
    """

    num_cpus: int | None = None
    """CPUs of the node; None for those of the machine."""
    num_gpus: int | None = None
    """GPUs of the node; None for those of the machine."""
    object_store_memory: int | str | None = None
    """Bytes of shared memory for objects, or text such as "8GB"; None leaves it to Ray."""
    memory: int | str | None = None
    """Bytes of memory that tasks and actors may reserve; None leaves it to Ray."""
    resources: dict[str, float] | None = None
    """Resources of other names, for stages of your own that ask Ray for them."""
    address: str | None = None
    """``host:port`` or ``ray://host:port`` of a cluster that must exist; "auto" for any on this machine; "local" for a
    new one, even if others run."""
    ray_port: int | None = None
    """Port of the head; None for a free one, as for the other ports."""
    ray_client_server_port: int | None = None
    """Port of the server for ``ray://``; None for no such server."""
    ray_dashboard_port: int | None = None
    ray_dashboard_host: str = "127.0.0.1"
    include_dashboard: bool | None = None
    """Start the dashboard, which ``ray job submit`` and `XennaExecutor` need. None: if Xenna is installed."""
    ray_metrics_port: int | None = None
    """Port at which Prometheus finds the node's metrics."""
    node_ip_address: str = "127.0.0.1"
    """The address to listen on. If other machines can reach it, they can join and connect."""
    ray_temp_dir: str | None = None
    """Where the folder of the cluster is made, for logs and spilled objects; None for $RAY_TMPDIR or /tmp. If the path
    is too long for sockets, Ray gets a short link to the folder in /tmp instead."""
    object_spilling_directory: str | None = None
    """Where objects are spilled if memory is full; None for the folder of the cluster."""
    start_timeout_s: float = 120.0

    started: bool = field(default=False, init=False, repr=False)
    """Whether the client started the cluster."""
    at: str | None = field(default=None, init=False, repr=False)
    """The address of the cluster while the client is started."""
    _pid: int = field(default=0, init=False, repr=False)
    _node: HeadNode | None = field(default=None, init=False, repr=False)
    _restore_variables: Callable[[], None] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for name, count in (("num_cpus", self.num_cpus), ("num_gpus", self.num_gpus)):
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
                raise RayClientError(f"{name} is a whole number of 0 or more, not {count!r}")
        for name, port in self._ports().items():
            if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 1024 <= port < 65536):
                raise RayClientError(f"{name} is a port from 1024 to 65535, or nothing for a free one, not {port!r}")
        _size("object_store_memory", self.object_store_memory)
        _size("memory", self.memory)
        for name, amount in (self.resources or {}).items():
            if name in ("CPU", "GPU", "memory", "object_store_memory"):
                raise RayClientError(f"resources: {name!r} has an argument of its own")
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < math.inf:
                raise RayClientError(f"resources: {name!r} is a number of 0 or more, not {amount!r}")
        wait = self.start_timeout_s
        if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 < wait < math.inf:
            raise RayClientError(f"start_timeout_s is a number above 0, not {wait!r}")
        if self.address not in (None, "auto", "local") and clusters.split(str(self.address)) is None:
            raise RayClientError(f"address is host:port, ray://host:port, 'auto' or 'local', not {self.address!r}")

    def start(self) -> Self:
        """Attach to a cluster, or start one and wait until it is up. Does nothing if the client is started."""
        if self.at is None:
            if not clusters.installed("ray"):
                raise RayClientError("RayClient needs Ray: pip install 'gristmill[ray]'")
            self._pid = os.getpid()
            found = clusters.find(self.address)
            if found is None:
                self._start_node()
            else:
                self._set_address(*found)
        return self

    def stop(self) -> None:
        """Leave the cluster; end it if this client started it. May be called any number of times."""
        if self._pid != os.getpid():
            return  # in a fork: the cluster is the parent's
        try:
            if self.started and clusters.connected_to() == self.at:  # Ray ends a process whose cluster is gone
                sys.modules["ray"].shutdown()
        finally:
            self.at = None
            self.started = False
            if self._restore_variables is not None:
                self._restore_variables()
                self._restore_variables = None
                reread_environment()
            if self._node is not None:
                self._node.end()
            atexit.unregister(self.stop)

    def abandon(self) -> None:
        """Leave a cluster that does not answer, without waiting for it; end it if this client started it."""
        if self._node is not None:
            self._node.end()
        self.started = False
        ray = sys.modules["ray"]
        leaving = threading.Thread(target=ray.shutdown, name="gristmill-disconnect", daemon=True)
        leaving.start()
        leaving.join(_DISCONNECT_S)
        if leaving.is_alive():  # it waits for a GCS that is frozen or cannot be reached
            forget_at_exit(ray)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that are not the defaults."""
        given = {f.name: (getattr(self, f.name), f.default) for f in fields(self) if f.init}
        return {name: value for name, (value, default) in given.items() if value != default}

    def _set_address(self, address: str, variables: dict[str, str]) -> None:
        self.at = address
        self._restore_variables = set_variables({ADDRESS: address, **variables})
        reread_environment()

    def _start_node(self) -> None:
        for name, port in self._ports().items():
            if port is not None and not clusters.is_free(self.node_ip_address, port):
                raise RayClientError(f"{name} {port} is taken by another process: leave it out, and a free one is used")
        variables = self._variables()
        parent = self.ray_temp_dir or os.environ.get("RAY_TMPDIR") or "/tmp"
        self._node = HeadNode(self._node_options(), variables, parent, self.start_timeout_s)
        atexit.register(self.stop)
        try:
            address = self._node.start()
            self.started = True
            self._set_address(address, variables)
        except BaseException:  # Ctrl-C too: all that was started is ended
            self.stop()
            raise

    def _variables(self) -> dict[str, str]:
        """Return the variables that the node and all processes that connect to it must share."""
        variables = {ONE_MACHINE: "0"} if self.node_ip_address in LOOPBACK else {}
        if self._has_dashboard:
            variables |= {name: value for name, value in LIMITS.items() if name not in os.environ}
        if os.environ.get(AUTH_MODE, "token").lower() == "token":
            variables[AUTH_MODE] = "token"
            if not has_token():
                variables[TOKEN] = secrets.token_hex(32)
        return variables

    def _node_options(self) -> dict[str, Any]:
        """Return the arguments of Ray's `RayParams`."""
        return {
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "object_store_memory": _size("object_store_memory", self.object_store_memory),
            "memory": _size("memory", self.memory),
            "resources": self.resources,
            "gcs_server_port": self.ray_port,
            "ray_client_server_port": self.ray_client_server_port,
            "dashboard_port": self.ray_dashboard_port,
            "dashboard_host": self.ray_dashboard_host,
            "include_dashboard": self._has_dashboard,
            "metrics_export_port": self.ray_metrics_port,
            "node_ip_address": self.node_ip_address,
            "object_spilling_directory": self.object_spilling_directory,
            "no_monitor": not self._has_dashboard,
        }

    def _ports(self) -> dict[str, int | None]:
        return {
            "ray_port": self.ray_port,
            "ray_client_server_port": self.ray_client_server_port,
            "ray_dashboard_port": self.ray_dashboard_port,
            "ray_metrics_port": self.ray_metrics_port,
        }

    @property
    def _has_dashboard(self) -> bool:
        return clusters.installed("cosmos_xenna") if self.include_dashboard is None else self.include_dashboard


def _size(name: str, value: int | str | None) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise RayClientError(f"{name}: {error}") from None
