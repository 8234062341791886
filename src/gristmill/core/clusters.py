"""Which cluster is there already, and whether it answers.

What asks is a process of its own, so that nothing that a dead or foreign address does can hang or upset this one.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ADDRESS = "RAY_ADDRESS"
AUTH_MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"
ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Set to 0, Ray keeps to the loopback address, as it always does on macOS. Otherwise it takes 127.0.0.1 for "this
machine", puts the address that others would use in its place, and cannot reach a node that listens on loopback only."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ACTORS_ASKED_FOR = 40_000
"""Xenna's monitor asks for the state of as many actors, more than Ray's dashboard allows by default."""
LIMITS = {
    "RAY_MAX_LIMIT_FROM_API_SERVER": str(ACTORS_ASKED_FOR),
    "RAY_MAX_LIMIT_FROM_DATA_SOURCE": str(ACTORS_ASKED_FOR),
}
"""The variables that allow it, in the processes of the cluster and in the one that asks."""
ANSWER_S = 30.0
CONNECT_S = 2.0
_SETTINGS = 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0])


def installed() -> bool:
    return importlib.util.find_spec("ray") is not None


def xenna_installed() -> bool:
    return importlib.util.find_spec("cosmos_xenna") is not None


def latest() -> str | None:
    """Where the last ``ray start`` of this user, or of root, on this machine said its cluster is; it may be dead."""
    root = os.environ.get("RAY_TMPDIR") or "/tmp"
    file = Path(root, "ray", "ray_current_cluster")
    try:
        if file.stat().st_uid not in (0, os.getuid()):
            return None
        return file.read_text().strip() or None
    except OSError:
        return None


def split(address: str) -> tuple[str, int] | None:
    """Host and port of ``host:port`` or ``ray://host:port``; None of anything else."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        return None
    return host.strip("[]"), int(port)


def listens(address: str) -> bool:
    """Whether there is anything that speaks as Ray does: HTTP/2, in which a server says its settings first."""
    place = split(address)
    try:
        with socket.create_connection(place or ("", 0), CONNECT_S) as sock:
            if os.environ.get("RAY_USE_TLS", "0") in ("1", "true"):
                return True  # nobody says anything there before the keys are agreed on
            sock.sendall(_PREFACE)
            return len(said := sock.recv(9)) > 3 and said[3] == _SETTINGS
    except OSError:
        return False


def has_token() -> bool:
    """Whether Ray would find a token where it looks for one."""
    if os.environ.get(TOKEN):
        return True
    path = os.environ.get(TOKEN_PATH)
    return Path(path).is_file() if path else (Path.home() / ".ray" / "auth_token").is_file()


def ask(address: str) -> tuple[dict[str, str] | None, str]:
    """The variables with which Ray connects to the cluster at an address; or None, and why it does not.

    None of them is needed as a rule: they are for a node that listens on loopback only, and for a cluster that wants
    a token where it was not said that there is one.
    """
    settings: dict[str, str] = {}
    place = split(address)
    if place and place[0] in LOOPBACK and ONE_MACHINE not in os.environ and not listens(f"{_outer_ip()}:{place[1]}"):
        settings = {ONE_MACHINE: "0"}
    why = _health(address, settings)
    if "uthenticat" in why and AUTH_MODE not in os.environ and has_token():
        settings |= {AUTH_MODE: "token"}
        why = _health(address, settings)
    return (None, why) if why else (settings, "")


def _outer_ip() -> str:
    """The address that Ray puts in the place of loopback's: the one from which this machine would call others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("8.8.8.8", 53))  # of datagrams: nothing is sent
            return str(sock.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _health(address: str, settings: Mapping[str, str]) -> str:
    """Why a cluster is not well; empty if it is."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    environment = {key: value for key, value in os.environ.items() if key != ADDRESS}
    try:
        done = subprocess.run(
            command,
            env=environment | dict(settings),
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


def reread_environment() -> None:
    """Have Ray in this process read its variables again. Call this after they changed, before connecting.

    Ray keeps what it read first. A process that still asks for tokens is not usable with a cluster that has none: the
    cluster cannot call it, and ends its actors because "all references to the actor were removed".
    """
    constants = sys.modules.get("ray._private.ray_constants")
    if constants is not None:
        default = sys.platform == "linux"
        many = os.environ.get(ONE_MACHINE, str(int(default))).lower() in ("1", "true")
        setattr(constants, "ENABLE_RAY_CLUSTER", many)  # noqa: B010  # of a module that type checkers do not see
    core = sys.modules.get("ray._raylet")
    if core is not None and hasattr(core, "AuthenticationTokenLoader"):  # not before Ray had tokens
        core.Config.initialize("")
        core.AuthenticationTokenLoader.instance().reset_cache()
