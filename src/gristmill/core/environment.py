"""Environment variables of Ray: their names, setting them for a while, and how Ray in this process follows them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

ADDRESS = "RAY_ADDRESS"
AUTH_MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"
ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""With 0, Ray keeps to the loopback address, as it always does on macOS. Otherwise it replaces 127.0.0.1 by the address
that other machines would use, and cannot reach a node that listens on loopback only."""
ACTORS_ASKED_FOR = 40_000
"""Xenna's monitor asks for the state of as many actors, more than Ray's dashboard allows by default."""
LIMITS = {
    "RAY_MAX_LIMIT_FROM_API_SERVER": str(ACTORS_ASKED_FOR),
    "RAY_MAX_LIMIT_FROM_DATA_SOURCE": str(ACTORS_ASKED_FOR),
}
"""The variables that allow it, in the processes of the cluster and in the one that asks."""


def set_variables(variables: Mapping[str, str]) -> Callable[[], None]:
    """Set variables and return what restores them. A variable that other code changes meanwhile keeps that value."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)

    def restore() -> None:
        for name, value in before.items():
            if os.environ.get(name) == variables[name]:
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    return restore


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a while."""
    restore = set_variables(variables)
    try:
        yield
    finally:
        restore()


def has_token() -> bool:
    """Whether Ray would find a token in the places where it looks."""
    if os.environ.get(TOKEN):
        return True
    path = os.environ.get(TOKEN_PATH)
    return Path(path).is_file() if path else (Path.home() / ".ray" / "auth_token").is_file()


def reread_environment() -> None:
    """Make Ray in this process read its variables again. Call this after they changed, before connecting.

    Ray keeps the first values that it reads. A process that still asks for tokens is not usable with a cluster that has
    none: the cluster cannot call it, and ends its actors because "all references to the actor were removed".
    """
    constants = sys.modules.get("ray._private.ray_constants")
    if constants is not None:
        default = sys.platform == "linux"
        many = os.environ.get(ONE_MACHINE, str(int(default))).lower() in ("1", "true")
        setattr(constants, "ENABLE_RAY_CLUSTER", many)  # noqa: B010  # of a module that type checkers do not see
    core = sys.modules.get("ray._raylet")
    if core is not None:
        with suppress(AttributeError):  # Ray before 2.52 has no tokens
            tokens = core.AuthenticationTokenLoader.instance()
            core.Config.initialize("")
            tokens.reset_cache()
