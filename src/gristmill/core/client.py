"""`RayClient`: a Ray cluster for as long as it is needed."""

from __future__ import annotations

import atexit
import ctypes
import json
import math
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gristmill.core import clusters, keeper, ray_head
from gristmill.core.clusters import ADDRESS, AUTH_MODE, LIMITS, LOOPBACK, ONE_MACHINE, TOKEN
from gristmill.errors import PipelineError
from gristmill.sizes import parse_size

_PORTS = ("ray_port", "ray_client_server_port", "ray_dashboard_port", "ray_metrics_port")
_SOCKET_BYTES = 103 if sys.platform == "darwin" else 107
"""The longest path of a socket."""
_SOCKET = "/session_2000-01-01_00-00-00_000000_0000000/sockets/plasma_store.99"
"""The longest that Ray makes in its folder."""
_LINKS = "/tmp"
_GONE_S = 90.0
"""How long the keeper may take to end everything: more than it grants itself."""
_LEAVE_S = 10.0
_LOOK_S = 0.05
_TOO_SLOW = "timed out during startup"
"""Ray's message for a node that did not start, for example because its raylet ended. A second attempt may succeed."""


class RayClientError(PipelineError):
    """A cluster cannot be started or reached, or an argument of `RayClient` makes no sense."""


@dataclass(eq=False)
class RayClient:
    """A Ray cluster for as long as it is needed: the one that is there, or one of its own on this machine.

        with RayClient(num_cpus=8):
            pipeline.run(RayExecutor())

    `start` attaches to the cluster of ``address``, of RAY_ADDRESS, or of the last ``ray start`` on this machine if it
    lives; then the other arguments are not looked at, and `stop` stops nothing. Otherwise it starts a head node, which
    listens on loopback only and asks for a token where Ray can (RAY_AUTH_MODE=disabled turns that off). While the
    client is started, RAY_ADDRESS says where the cluster is, so that whatever connects to Ray in this process, or in
    processes it starts, finds it.

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
    """``host:port`` or ``ray://host:port`` of a cluster that must be there; "auto" for any on this machine; "local" for
    one of its own, whatever is there."""
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
    """The address to listen on; with one that other machines can reach, they can join, and call."""
    ray_temp_dir: str | None = None
    """Where the folder of the cluster is made, for logs and spilled objects; None for $RAY_TMPDIR or /tmp. If the path
    is too long for sockets, Ray is given a short link to the folder in /tmp instead."""
    object_spilling_directory: str | None = None
    """Where objects go for which there is no memory; None for the folder of the cluster."""
    start_timeout_s: float = 120.0

    started: bool = field(default=False, init=False, repr=False)
    """Whether the cluster is this client's own."""
    _before: dict[str, tuple[str | None, str]] = field(default_factory=dict, init=False, repr=False)
    """The variables that were changed: what each was, and what it was changed to."""
    _at: str | None = field(default=None, init=False, repr=False)
    _pid: int = field(default=0, init=False, repr=False)
    _lifeline: int = field(default=-1, init=False, repr=False)
    _gone: int = field(default=-1, init=False, repr=False)
    _keeper: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("num_cpus", "num_gpus"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise RayClientError(f"{name} is a whole number of 0 or more, not {value!r}")
        for name in _PORTS:
            port = getattr(self, name)
            if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 1024 <= port < 65536):
                raise RayClientError(f"{name} is a port from 1024 to 65535, or nothing for a free one, not {port!r}")
        for name in ("object_store_memory", "memory"):
            if getattr(self, name) is not None:
                _size(name, getattr(self, name))
        for name, value in (self.resources or {}).items():
            if name in ("CPU", "GPU", "memory", "object_store_memory"):
                raise RayClientError(f"resources: {name!r} has an argument of its own")
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise RayClientError(f"resources: {name!r} is a number of 0 or more, not {value!r}")
        wait = self.start_timeout_s
        if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 < wait < math.inf:
            raise RayClientError(f"start_timeout_s is a number above 0, not {wait!r}")
        if self.address not in (None, "auto", "local") and clusters.split(str(self.address)) is None:
            raise RayClientError(f"address is host:port, ray://host:port, 'auto' or 'local', not {self.address!r}")

    @property
    def at(self) -> str | None:
        """The address of the cluster while the client is started."""
        return self._at

    def start(self) -> Self:
        """Attach to a cluster, or start one and wait until it is up. Nothing happens if that was done."""
        if self._at is not None:
            return self
        if not clusters.installed():
            raise RayClientError("RayClient needs Ray: pip install 'gristmill[ray]'")
        if not self._attach():
            self._start()
        return self

    def stop(self) -> None:
        """Leave the cluster; end it if this client started it. May be called any number of times."""
        if self._pid != os.getpid():
            return  # in a fork: the cluster is the parent's
        try:
            if self.started:
                _disconnect(self._at)
        finally:
            self._restore()
            self._at = None
            self.started = False
            self._end()
            atexit.unregister(self.stop)

    def abandon(self) -> None:
        """Leave a cluster that does not answer, without waiting for it; end it if this client started it."""
        self._end()
        self.started = False
        ray = sys.modules["ray"]
        leaving = threading.Thread(target=ray.shutdown, name="gristmill-leaving", daemon=True)
        leaving.start()
        leaving.join(_LEAVE_S)
        if leaving.is_alive():  # it waits for a GCS that is frozen or cut off
            forget_at_exit(ray)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def arguments(self) -> dict[str, Any]:
        """The arguments that are not the defaults."""
        given = [f for f in fields(self) if f.init and f.default is not MISSING]
        return {f.name: getattr(self, f.name) for f in given if getattr(self, f.name) != f.default}

    # -- a cluster that is there

    def _attach(self) -> bool:
        inside = _connected()
        wanted = self.address or os.environ.get(ADDRESS) or None
        if inside is not None:
            if wanted in (None, "auto", inside):
                return self._attached(inside, {})
            raise RayClientError(f"this process is connected to Ray at {inside} already: call ray.shutdown() first")
        if wanted == "local":
            return False
        if wanted in (None, "auto"):
            for found in dict.fromkeys(filter(None, [clusters.latest(), *(_running() if wanted else ())])):
                if clusters.listens(found):
                    settings, _ = clusters.ask(found)
                    if settings is not None:
                        return self._attached(found, settings)
            if wanted:
                raise RayClientError("no Ray cluster runs on this machine: leave out the address, and one is started")
            return False
        said = "address" if self.address else ADDRESS
        if clusters.split(wanted) is None:
            raise RayClientError(
                f"{said} is {wanted!r}, which is not host:port or ray://host:port"
                + ("; http:// is for 'ray job submit' only" if wanted.startswith("http") else "")
            )
        if not clusters.listens(wanted):
            raise RayClientError(f"{said} is {wanted}, but nothing answers there as Ray does. Is the cluster still up?")
        if wanted.startswith("ray://"):
            return self._attached(wanted, {})
        settings, why = clusters.ask(wanted)
        if settings is None:
            raise RayClientError(f"{said} is {wanted}, but the cluster there cannot be used: {why}")
        return self._attached(wanted, settings)

    def _attached(self, address: str, settings: dict[str, str]) -> bool:
        self._pid = os.getpid()
        self._at = address
        self._set({ADDRESS: address, **settings})
        return True

    # -- a cluster of its own

    def _start(self) -> None:
        for name in _PORTS:
            port = getattr(self, name)
            if port is not None and not _is_free(self.node_ip_address, port):
                raise RayClientError(f"{name} {port} is taken by another process: leave it out, and a free one is used")
        parent = self.ray_temp_dir or os.environ.get("RAY_TMPDIR") or "/tmp"
        settings = self._settings()
        self._pid = os.getpid()
        atexit.register(self.stop)
        until = time.monotonic() + self.start_timeout_s
        try:
            while True:
                folder = _short(_make_folder(parent))
                self._launch(folder, settings)
                try:
                    self._at = self._wait(folder, until)
                    break
                except RayClientError as error:
                    if _TOO_SLOW not in str(error) or time.monotonic() > until:
                        raise
                    self._end()
            self.started = True
            self._set({ADDRESS: self._at, **settings})
        except BaseException:  # Ctrl-C too: whatever was begun is ended
            self.stop()
            raise

    def _settings(self) -> dict[str, str]:
        """The variables that the node and whoever connects to it must share."""
        settings = {ONE_MACHINE: "0"} if self.node_ip_address in LOOPBACK else {}
        if self._has_dashboard:
            settings |= {name: value for name, value in LIMITS.items() if name not in os.environ}
        if os.environ.get(AUTH_MODE, "token").lower() == "token":
            settings[AUTH_MODE] = "token"
            if not clusters.has_token():
                settings[TOKEN] = secrets.token_hex(32)
        return settings

    @property
    def _has_dashboard(self) -> bool:
        return clusters.xenna_installed() if self.include_dashboard is None else self.include_dashboard

    def _launch(self, folder: str, settings: dict[str, str]) -> None:
        options = {
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
        head = [sys.executable, "-P", ray_head.__file__, folder, json.dumps(options), str(self.start_timeout_s)]
        command = [sys.executable, "-I", keeper.__file__, str(os.getpid()), folder, *head]
        environment = {"RAY_USAGE_STATS_ENABLED": "0"} | {k: v for k, v in os.environ.items() if k != ADDRESS}
        read, self._lifeline = os.pipe()
        self._gone, write = os.pipe()
        try:
            self._keeper = subprocess.Popen(
                command, stdin=read, stdout=write, env=environment | settings, start_new_session=True
            )
        finally:
            os.close(read)
            os.close(write)

    def _wait(self, folder: str, until: float) -> str:
        """The address, once it is there."""
        address = Path(folder, ray_head.ADDRESS)
        while time.monotonic() < until:
            if select.select([self._gone], [], [], _LOOK_S)[0]:
                words = _read_all(self._gone).decode(errors="replace").strip()
                raise RayClientError(f"Ray did not start: {_last_words(words)}")
            try:
                return address.read_text()
            except FileNotFoundError:
                pass
        raise RayClientError(f"Ray was not up within {self.start_timeout_s:g} s; see start_timeout_s")

    def _end(self) -> None:
        """Let go of the keeper, and wait until it says that nothing is left."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self._gone >= 0:
            until = time.monotonic() + _GONE_S
            while (left := until - time.monotonic()) > 0:
                if select.select([self._gone], [], [], left)[0] and not os.read(self._gone, 65536):
                    break
            os.close(self._gone)
            self._gone = -1
        if self._keeper is not None:
            try:
                self._keeper.wait(1)
            except subprocess.TimeoutExpired:
                self._keeper.send_signal(signal.SIGKILL)
            self._keeper = None

    # -- the environment

    def _set(self, settings: dict[str, str]) -> None:
        for name, value in settings.items():
            self._before[name] = (os.environ.get(name), value)
            os.environ[name] = value
        clusters.reread_environment()

    def _restore(self) -> None:
        """Put variables back, but for those that somebody else has changed since."""
        for name, (before, value) in self._before.items():
            if os.environ.get(name) != value:
                continue
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before
        if self._before:
            self._before.clear()
            clusters.reread_environment()


def _size(name: str, value: int | str | None) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise RayClientError(f"{name}: {error}") from None


def _make_folder(parent: str) -> str:
    try:
        Path(parent).mkdir(parents=True, exist_ok=True)
        return tempfile.mkdtemp(prefix="gm-ray-", dir=parent)
    except OSError as error:
        raise RayClientError(f"no folder can be made in {parent}: {error.strerror}") from None


def _short(folder: str) -> str:
    """Return the folder, or a short link to it if its path is too long for the sockets that Ray makes in there."""
    if len(os.fsencode(os.path.abspath(folder))) + len(_SOCKET) <= _SOCKET_BYTES:
        return folder
    link = os.path.join(_LINKS, f"gm-{secrets.token_hex(4)}")
    try:
        os.symlink(os.path.abspath(folder), link)
    except OSError as error:
        os.rmdir(folder)
        raise RayClientError(
            f"ray_temp_dir {os.path.dirname(folder)!r} is too long for Ray's sockets, and no link to it can be made in "
            f"{_LINKS} ({error.strerror}). Use a path of at most {_SOCKET_BYTES - len(_SOCKET) - 16} bytes."
        ) from None
    return link


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            return False
    return True


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 65536):
        parts.append(part)
    return b"".join(parts)


def _last_words(log: str) -> str:
    """What came last in a log: of a traceback, only what was raised."""
    lines = log.splitlines()
    frames = [i for i, line in enumerate(lines) if line.startswith("  ")]
    if any(line.startswith("Traceback ") for line in lines) and frames and frames[-1] + 1 < len(lines):
        return "\n".join(lines[frames[-1] + 1 :])
    return "\n".join(lines[-20:]) or "it said nothing"


def _connected() -> str | None:
    """The cluster that this process is connected to."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    return str(ray.get_runtime_context().gcs_address)


def _disconnect(address: str | None) -> None:
    """Leave a cluster that is about to end: Ray would end a process whose cluster is gone."""
    if address is not None and _connected() == address:
        sys.modules["ray"].shutdown()


def _running() -> list[str]:
    """Clusters of which a node runs on this machine, whoever started them."""
    from ray._private.services import find_gcs_addresses

    return sorted(find_gcs_addresses())


def forget_at_exit(ray: Any) -> None:
    """Let this process end with its own exit code although it is connected to a cluster that does not answer.

    Ray's exit handler would wait for the cluster, and then destructors of its core crash (SIGSEGV) because its threads
    still wait. So neither runs; all other exit handlers of Python do. Destructors can be skipped only with glibc;
    elsewhere Ray may still end the process with a signal, after everything else is done.
    """
    atexit.unregister(ray._private.worker.shutdown)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        libc.fflush(None)
        libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)  # called with the exit code, before all others
