"""A head node on this machine, below a process that leaves nothing of it behind (`ray_head.py`)."""

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

from gristmill.core import ray_head
from gristmill.core.clusters import RayClientError
from gristmill.core.environment import ADDRESS

_SOCKET_BYTES = 103 if sys.platform == "darwin" else 107
"""The longest path of a socket."""
_SOCKET = "/session_2000-01-01_00-00-00_000000_0000000/sockets/plasma_store.99"
"""The longest path that Ray makes in its folder."""
_LINKS = "/tmp"
_END_S = 90.0
"""How long the process may take to end everything: more than its own limits."""
_TOO_SLOW = "timed out during startup"
"""Ray's message for a node that did not start, for example because its raylet ended. A second attempt may succeed."""


class HeadNode:
    """A head node that lives until `end`, or until this process ends in whatever way."""

    def __init__(self, options: dict[str, Any], variables: dict[str, str], parent: str, timeout_s: float) -> None:
        self._options = options
        self._variables = variables
        self._parent = parent
        self._timeout_s = timeout_s
        self._folder = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start the node and return its address when it is up. Call `end` whether this raises or not."""
        until = time.monotonic() + self._timeout_s
        while True:
            self._folder = make_folder(self._parent)
            arguments = [str(os.getpid()), self._folder, json.dumps(self._options), str(self._timeout_s)]
            self._process = subprocess.Popen(
                [sys.executable, "-P", ray_head.__file__, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={"RAY_USAGE_STATS_ENABLED": "0"}
                | {name: value for name, value in os.environ.items() if name != ADDRESS}
                | self._variables,
                start_new_session=True,
            )
            answer = self._answer(self._process, until)
            if "address" in answer:
                return answer["address"]
            if _TOO_SLOW not in answer["error"] or time.monotonic() > until:
                raise RayClientError(f"Ray did not start: {answer['error']}")
            self.end()

    def _answer(self, process: subprocess.Popen[bytes], until: float) -> dict[str, str]:
        """Return the address of the node, or the error."""
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            raise RayClientError(f"Ray was not up within {self._timeout_s:g} s; see start_timeout_s")
        line = process.stdout.readline()
        answer: dict[str, str] = json.loads(line) if line else {"error": f"its process ended with {process.wait()}"}
        return answer

    def end(self) -> None:
        """Close the standard input of the process, and wait until it has ended everything."""
        if self._process is not None:
            try:
                self._process.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
            ray_head.remove(self._folder)  # still there if the process was killed
            self._process = None


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
