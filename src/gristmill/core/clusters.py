"""Which Ray cluster runs already, and whether it answers.

Another process asks it, so that a dead or foreign address can neither block nor break this one.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from gristmill.core.environment import ADDRESS, AUTH_MODE, ONE_MACHINE, has_token
from gristmill.errors import PipelineError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANSWER_S = 30.0
CONNECT_S = 2.0
_SETTINGS = 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0])


class RayClientError(PipelineError):
    """A cluster cannot be started or reached, or an argument of `RayClient` makes no sense."""


def find(address: str | None) -> tuple[str, dict[str, str]] | None:
    """Return the cluster to attach to and the variables that connecting to it needs; None if one is to be started.

    Raises `RayClientError` if a cluster was asked for and cannot be used.
    """
    connected = connected_to()
    wanted = address or os.environ.get(ADDRESS) or None
    if connected is not None:
        if wanted in (None, "auto", connected):
            return connected, {}
        raise RayClientError(f"this process is connected to Ray at {connected} already: call ray.shutdown() first")
    if wanted == "local":
        return None
    if wanted in (None, "auto"):
        for place in dict.fromkeys(filter(None, [latest(), *(_running() if wanted else ())])):
            if listens(place) and (variables := _ask(place)[0]) is not None:
                return place, variables
        if wanted:
            raise RayClientError("no Ray cluster runs on this machine: leave out the address, and one is started")
        return None
    name = "address" if address else ADDRESS
    if split(wanted) is None:
        raise RayClientError(
            f"{name} is {wanted!r}, which is not host:port or ray://host:port"
            + ("; http:// is for 'ray job submit' only" if wanted.startswith("http") else "")
        )
    if not listens(wanted):
        raise RayClientError(f"{name} is {wanted}, but nothing answers there as Ray does. Is the cluster still up?")
    variables, error = ({}, "") if wanted.startswith("ray://") else _ask(wanted)
    if variables is None:
        raise RayClientError(f"{name} is {wanted}, but the cluster there cannot be used: {error}")
    return wanted, variables


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def connected_to() -> str | None:
    """Return the address of the cluster that this process is connected to."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    return str(ray.get_runtime_context().gcs_address)


def latest() -> str | None:
    """Return the cluster of the last ``ray start`` of this user, or of root, on this machine. It may be dead."""
    file = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster")
    try:
        if file.stat().st_uid not in (0, os.getuid()):
            return None
        return file.read_text().strip() or None
    except OSError:
        return None


def _running() -> list[str]:
    """Return the clusters with a node on this machine, whichever user started them."""
    from ray._private.services import find_gcs_addresses

    return sorted(find_gcs_addresses())


def split(address: str) -> tuple[str, int] | None:
    """Return host and port of ``host:port`` or ``ray://host:port``; None for anything else."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        return None
    return host.strip("[]"), int(port)


def listens(address: str) -> bool:
    """Whether a server answers there as Ray does: in HTTP/2, where a server first sends its settings."""
    try:
        with socket.create_connection(split(address) or ("", 0), CONNECT_S) as sock:
            if os.environ.get("RAY_USE_TLS", "0") in ("1", "true"):
                return True  # such a server sends nothing before the keys are exchanged
            sock.sendall(_PREFACE)
            return len(answer := sock.recv(9)) > 3 and answer[3] == _SETTINGS
    except OSError:
        return False


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen on the port."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            return False
    return True


def _ask(address: str) -> tuple[dict[str, str] | None, str]:
    """Return the variables that connecting to a cluster needs; or None, and the reason why it fails.

    Most clusters need none. The exceptions: a node that listens on loopback only, and a cluster that wants a token.
    """
    variables: dict[str, str] = {}
    place = split(address)
    if place and place[0] in LOOPBACK and ONE_MACHINE not in os.environ and not listens(f"{_outer_ip()}:{place[1]}"):
        variables = {ONE_MACHINE: "0"}
    error = _health(address, variables)
    if "uthenticat" in error and AUTH_MODE not in os.environ and has_token():
        variables |= {AUTH_MODE: "token"}
        error = _health(address, variables)
    return (None, error) if error else (variables, "")


def _outer_ip() -> str:
    """Return the address that Ray uses instead of loopback: the one from which this machine would call others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("8.8.8.8", 53))  # of datagrams: nothing is sent
            return str(sock.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _health(address: str, variables: Mapping[str, str]) -> str:
    """Return the error of a health check of the cluster; empty if it is healthy."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    inherited = {name: value for name, value in os.environ.items() if name != ADDRESS}
    try:
        done = subprocess.run(
            command,
            env=inherited | dict(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer within {ANSWER_S:g} s"
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"the health check ended with {done.returncode}"
