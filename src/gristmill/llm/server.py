"""A server that belongs to the run: started, health-checked, started again if it fails, and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO
from urllib.parse import urlsplit

from gristmill.llm.errors import Unusable
from gristmill.logs import logger

_PR_SET_PDEATHSIG = 1
_CHECK_S = 0.25
_STOP_S = 10.0
_TAIL_BYTES = 2000
_LISTENS = "0A"
_LOOPBACK_4 = "7F"
_LOOPBACK_6 = ("00000000000000000000000001000000", "0000000000000000FFFF0000")


@dataclass(frozen=True)
class LocalServer:
    """A command that starts a server on this machine.

    - ``command``: the program and its arguments. ``{port}`` becomes a free port: ``["vllm", "serve", "my/model",
      "--host", "127.0.0.1", "--port", "{port}"]``. No shell is involved.
    - ``base_path``: the path of the API on the server.
    - ``health``: a path that answers with status 200 when the server is ready.
    - ``start_s``: the longest time until it is.
    - ``check_every_s``, ``unhealthy_s``: how often it is checked, and how long it may be silent until it is restarted.
    - ``max_restarts``: the run stops after so many.
    - ``environment``: variables of its environment, beside those of the run.
    """

    command: Sequence[str]
    base_path: str = "/v1"
    health: str = "/health"
    start_s: float = 600.0
    check_every_s: float = 5.0
    unhealthy_s: float = 60.0
    max_restarts: int = 5
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.command, str) or not self.command or not all(isinstance(x, str) for x in self.command):
            raise ValueError('command must be a list of texts: ["vllm", "serve", ..., "--port", "{port}"].')
        if not any("{port}" in word for word in self.command):
            raise ValueError("command must have {port} where the port of the server goes.")
        if any(word in ("0.0.0.0", "::") or word.endswith(("=0.0.0.0", "=::")) for word in self.command):
            raise ValueError("the server of a run listens on loopback only: use 127.0.0.1 instead of 0.0.0.0 or ::.")


class RunningServer:
    """The process of a `LocalServer`, and the task that watches it."""

    def __init__(self, config: LocalServer, log_folder: str | None = None) -> None:
        self.config = config
        self.port = _free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        self.base_url = self.origin + config.base_path
        self.restarts = 0
        self._log_folder = log_folder
        self._process: asyncio.subprocess.Process | None = None
        self._pid: int | None = None
        self._watch: asyncio.Task[None] | None = None
        self._log: IO[bytes] | None = None
        self.failed: Unusable | None = None
        """Why it will not run again."""

    async def start(self) -> None:
        """Start the server. Return when it is healthy; raise `Unusable` if it does not become so."""
        await self._start()
        self._watch = asyncio.get_running_loop().create_task(self._watched())

    async def stop(self) -> None:
        """Stop the server with all its processes."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
        await self._end()

    def kill(self) -> None:
        """Kill the server with all its processes, without an event loop."""
        if self._pid is not None:
            _signal_group(self._pid, signal.SIGKILL)
            self._pid = None

    async def _start(self) -> None:
        import tempfile

        command = [word.replace("{port}", str(self.port)) for word in self.config.command]
        if self._log is None:
            self._log = tempfile.TemporaryFile(dir=self._log_folder)  # noqa: SIM115  # as long as the server
        logger.info("starting the server %s on port %d", command[0], self.port)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, **self.config.environment},
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        except OSError as error:
            raise Unusable(f"the server cannot be started: {command[0]}: {error.strerror or error}") from None
        self._pid = self._process.pid
        deadline = time.monotonic() + self.config.start_s
        while not await self.is_healthy():
            if self._process.returncode is not None:
                raise Unusable(f"the server {command[0]} exited with {self._process.returncode}:\n{self.tail()}")
            if time.monotonic() > deadline:
                await self._end()
                raise Unusable(
                    f"the server {command[0]} was not healthy after {self.config.start_s:g} s "
                    f"({self.origin}{self.config.health}):\n{self.tail()}"
                )
            await asyncio.sleep(_CHECK_S)
        if outside := listens_outside(self.port):
            await self._end()
            raise Unusable(
                f"the server {command[0]} listens on {outside}, where other machines may reach it. Make it listen on "
                "127.0.0.1: most servers have an option --host."
            )

    async def is_healthy(self) -> bool:
        """Whether the server answers."""
        status = await asyncio.to_thread(_status, self.port, self.config.health)
        return status == 200

    def tail(self) -> str:
        """Return the end of what the server has printed."""
        if self._log is None:
            return ""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - _TAIL_BYTES))
        return self._log.read().decode("utf-8", "replace").strip()

    async def _watched(self) -> None:
        answered = time.monotonic()
        while True:
            await asyncio.sleep(self.config.check_every_s)
            assert self._process is not None
            exited = self._process.returncode
            if exited is None and await self.is_healthy():
                answered = time.monotonic()
                continue
            if exited is None and time.monotonic() - answered < self.config.unhealthy_s:
                continue
            why = f"exited with {exited}" if exited is not None else "did not answer"
            if not await self._restarted(why):
                return
            answered = time.monotonic()

    async def _restarted(self, why: str) -> bool:
        """Start the server again, several times if necessary. Return whether it runs."""
        while self.restarts < self.config.max_restarts:
            self.restarts += 1
            logger.warning("the server of the run %s: it is started again", why)
            await self._end()
            try:
                await self._start()
            except Unusable as error:
                why = str(error)
                continue
            return True
        self.failed = Unusable(f"the server {why} after {self.restarts} restarts:\n{self.tail()}")
        return False

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _STOP_S)
        _signal_group(process.pid, signal.SIGKILL)
        await process.wait()
        self._pid = None


def listens_outside(port: int) -> str:
    """Return an address that is not loopback and on which a process listens at this port; empty if there is none."""
    for path, is_four in (("/proc/net/tcp", True), ("/proc/net/tcp6", False)):
        try:
            with open(path) as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            address, _, number = row[1].partition(":")
            if row[3] != _LISTENS or int(number, 16) != port:
                continue
            if not (address.endswith(_LOOPBACK_4) if is_four else _is_loopback_6(address)):
                return "all addresses" if not int(address, 16) else "an address that is not loopback"
    return ""


def _is_loopback_6(address: str) -> bool:
    one, mapped = _LOOPBACK_6
    return address == one or (address.startswith(mapped) and address.endswith(_LOOPBACK_4))


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _status(port: int, path: str) -> int:
    """The HTTP status of a path of a server on this machine; 0 if it does not answer."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", urlsplit(path).path or "/")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
