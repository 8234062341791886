"""A head node on this machine, started below a keeper (`keeper.py`), which leaves nothing of the node behind."""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gristmill.core import keeper, ray_head
from gristmill.core.clusters import RayClientError
from gristmill.core.environment import ADDRESS

_SOCKET_BYTES = 103 if sys.platform == "darwin" else 107
"""The longest path of a socket."""
_SOCKET = "/session_2000-01-01_00-00-00_000000_0000000/sockets/plasma_store.99"
"""The longest path that Ray makes in its folder."""
_LINKS = "/tmp"
_END_S = 90.0
"""How long the keeper may take to end everything: more than its own limits."""
_POLL_S = 0.05
_TOO_SLOW = "timed out during startup"
"""Ray's message for a node that did not start, for example because its raylet ended. A second attempt may succeed."""


class HeadNode:
    """A head node that lives until `end`, or until this process ends in whatever way."""

    def __init__(self, options: dict[str, Any], variables: dict[str, str], parent: str, timeout_s: float) -> None:
        self._options = options
        self._variables = variables
        self._parent = parent
        self._timeout_s = timeout_s
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start the node and return its address when it is up. Call `end` whether this raises or not."""
        until = time.monotonic() + self._timeout_s
        while True:
            folder = make_folder(self._parent)
            head = [sys.executable, "-P", ray_head.__file__, folder, json.dumps(self._options), str(self._timeout_s)]
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", keeper.__file__, str(os.getpid()), folder, *head],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={"RAY_USAGE_STATS_ENABLED": "0"}
                | {name: value for name, value in os.environ.items() if name != ADDRESS}
                | self._variables,
                start_new_session=True,
            )
            try:
                return self._wait(self._keeper, Path(folder, ray_head.ADDRESS), until)
            except RayClientError as error:
                if _TOO_SLOW not in str(error) or time.monotonic() > until:
                    raise
                self.end()

    def _wait(self, process: subprocess.Popen[bytes], address: Path, until: float) -> str:
        """Return the content of the address file when it appears."""
        assert process.stdout is not None
        while time.monotonic() < until:
            if select.select([process.stdout], [], [], _POLL_S)[0]:
                log = process.stdout.read().decode(errors="replace").strip()
                raise RayClientError(f"Ray did not start: {_reason(log)}")
            try:
                return address.read_text()
            except FileNotFoundError:
                pass
        raise RayClientError(f"Ray was not up within {self._timeout_s:g} s; see start_timeout_s")

    def end(self) -> None:
        """Close the keeper's standard input, and wait until the keeper has ended everything."""
        if self._keeper is not None:
            try:
                self._keeper.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                self._keeper.kill()
            self._keeper = None


def make_folder(parent: str) -> str:
    """Make a folder and return its path, or a short link to it if the path is too long for the sockets in there."""
    try:
        Path(parent).mkdir(parents=True, exist_ok=True)
        folder = os.path.abspath(tempfile.mkdtemp(prefix="gm-ray-", dir=parent))
    except OSError as error:
        raise RayClientError(f"no folder can be made in {parent}: {error.strerror}") from None
    if len(os.fsencode(folder)) + len(_SOCKET) <= _SOCKET_BYTES:
        return folder
    link = os.path.join(_LINKS, f"gm-{secrets.token_hex(4)}")
    try:
        os.symlink(folder, link)
    except OSError as error:
        os.rmdir(folder)
        raise RayClientError(
            f"ray_temp_dir {parent!r} is too long for Ray's sockets, and no link to it can be made in {_LINKS} "
            f"({error.strerror}). Use a path of at most {_SOCKET_BYTES - len(_SOCKET) - 16} bytes."
        ) from None
    return link


def _reason(log: str) -> str:
    """Return the end of a log: of a traceback, only the error."""
    lines = log.splitlines()
    frames = [i for i, line in enumerate(lines) if line.startswith("  ")]
    if any(line.startswith("Traceback ") for line in lines) and frames and frames[-1] + 1 < len(lines):
        return "\n".join(lines[frames[-1] + 1 :])
    return "\n".join(lines[-20:]) or "its log is empty"
