"""Prometheus and Grafana, if they are installed: started on loopback, and stopped together."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gristmill.errors import PipelineError, PlanError
from gristmill.metrics.stack_files import StackFiles

_READY_S = 60.0
_STOP_S = 10.0
_SHOWN_LINES = 8
_GRAFANA_HOMES = ("/usr/share/grafana", "/usr/local/share/grafana", "/opt/homebrew/share/grafana", "/opt/grafana")


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """How a server is started."""

    name: str
    command: tuple[str, ...]
    """Empty if it is not installed."""
    port: int
    ready: str
    """The path that answers once it is ready."""
    install: str
    """How to get it."""


def server_plans(stack: StackFiles) -> list[ServerPlan]:
    """Return how to start each server."""
    return [
        ServerPlan(
            "Prometheus",
            _prometheus(stack),
            stack.prometheus_port,
            "/-/ready",
            "install the package 'prometheus' of your system (apt-get install prometheus, brew install prometheus)",
        ),
        ServerPlan(
            "Grafana",
            _grafana(stack),
            stack.grafana_port,
            "/api/health",
            "install 'grafana' as its documentation says (grafana.com/docs, 'Install Grafana'), or import "
            f"{stack.dashboard} into a Grafana that you have",
        ),
    ]


def _prometheus(stack: StackFiles) -> tuple[str, ...]:
    program = shutil.which("prometheus")
    if program is None:
        return ()
    data = stack.folder / "data" / "prometheus"
    listen = f"127.0.0.1:{stack.prometheus_port}"
    return (
        program,
        f"--config.file={stack.prometheus}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address={listen}",
        "--log.level=warn",
    )


def _grafana(stack: StackFiles) -> tuple[str, ...]:
    program, one = shutil.which("grafana-server"), shutil.which("grafana")
    if program is None and one is None:
        return ()
    command = (program,) if program is not None else (one or "", "server")
    home = next((path for path in _GRAFANA_HOMES if Path(path, "conf", "defaults.ini").exists()), None)
    return (*command, f"--config={stack.grafana}", *(() if home is None else (f"--homepath={home}",)))


class RunningServers:
    """Servers that were started. `stop` ends them."""

    def __init__(self, stack: StackFiles) -> None:
        self._logs = stack.folder / "logs"
        self._running: list[tuple[ServerPlan, subprocess.Popen[bytes], Path]] = []

    def start(self, plans: Sequence[ServerPlan]) -> None:
        """Start servers and wait until all are ready. Raise `PipelineError` if one is not; then stop all."""
        for plan in plans:
            check_free(plan)
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            for plan in plans:
                log = self._logs / f"{plan.name.lower()}.log"
                with log.open("wb") as file:
                    # A session of its own: Ctrl-C reaches only this process, which then stops the servers in order.
                    process = subprocess.Popen(
                        plan.command,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=file,
                        start_new_session=True,
                        cwd=self._logs.parent,
                    )
                self._running.append((plan, process, log))
            for plan, process, log in self._running:
                _wait_until_ready(plan, process, log)
        except BaseException:
            self.stop()
            raise

    def watch(self) -> NoReturn:
        """Wait. Raise `PipelineError` when a server ends."""
        while True:
            for plan, process, log in self._running:
                if process.poll() is not None:
                    raise _ended(plan, process, log)
            time.sleep(0.5)

    def stop(self) -> None:
        for _, process, _ in self._running:
            with suppress(ProcessLookupError):
                process.terminate()
        until = time.monotonic() + _STOP_S
        for _, process, _ in self._running:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


def check_free(plan: ServerPlan) -> None:
    """Raise `PlanError` if the port of a server is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", plan.port))
        except OSError as error:
            option = "--port" if plan.name == "Prometheus" else "--grafana-port"
            raise PlanError(
                f"{plan.name} cannot listen at 127.0.0.1:{plan.port}: {error.strerror}. Stop what uses the port, or "
                f"choose another one with {option}."
            ) from None


def _wait_until_ready(plan: ServerPlan, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _READY_S
    url = f"http://127.0.0.1:{plan.port}{plan.ready}"
    while process.poll() is None:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        if time.monotonic() > until:
            raise PipelineError(f"{plan.name} is not ready after {_READY_S:.0f} s. Its log is {log}:\n{_tail(log)}")
        time.sleep(0.1)
    raise _ended(plan, process, log)


def _ended(plan: ServerPlan, process: subprocess.Popen[bytes], log: Path) -> PipelineError:
    return PipelineError(
        f"{plan.name} ended with status {process.returncode}. The end of its log, {log}:\n{_tail(log)}"
    )


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
    return "\n".join(f"    {line}" for line in lines)
