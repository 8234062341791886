"""A server that belongs to the run: started, restarted after a failure, stopped, and reached from this machine only."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest
from tests.llm.conftest import SERVER

from gristmill.llm.errors import Unusable
from gristmill.llm.server import LocalServer, RunningServer

# The server of the tests ends with its standard input. Here that is a pipe that nothing closes.
WRAPPER = """
import os, runpy, sys
read, write = os.pipe()
os.dup2(read, 0)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def config(*options: str, **more: Any) -> LocalServer:
    command = [sys.executable, "-c", WRAPPER, str(SERVER), "--port", "{port}", "--median-ms", "1", *options]
    return LocalServer(command, **{"check_every_s": 0.1, "start_s": 60, **more})


def test_it_runs_from_start_to_stop():
    async def main() -> None:
        server = RunningServer(config())
        await server.start()
        assert await server.is_healthy() and server.base_url.endswith("/v1")
        pid = server._pid
        await server.stop()
        assert not await server.is_healthy() and not psutil.pid_exists(pid)

    asyncio.run(main())


def test_it_is_started_again_when_it_dies_and_given_up_after_some_deaths():
    async def main() -> None:
        server = RunningServer(config(max_restarts=1))
        await server.start()
        for _ in range(2):
            pid, restarts = server._pid, server.restarts
            os.kill(pid, signal.SIGKILL)
            while server.failed is None and not (server.restarts > restarts and await server.is_healthy()):
                await asyncio.sleep(0.05)
        assert server.restarts == 1 and "exited with -9" in str(server.failed)
        await server.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            [sys.executable, "-c", "print('no such model {port}'); raise SystemExit(3)"],
            r"exited with 3:\nno such model",
        ),
        (["/no/such/program", "{port}"], "cannot be started: /no/such/program: No such file"),
        ([sys.executable, "-c", "import time; time.sleep(60) # {port}"], "was not healthy after 1 s"),
    ],
)
def test_a_server_that_does_not_start_is_an_error_with_its_output(command, words):
    with pytest.raises(Unusable, match=words):
        asyncio.run(RunningServer(LocalServer(command, start_s=1)).start())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_server_that_other_machines_can_reach_is_stopped():
    async def main() -> None:
        server = RunningServer(config("--host", "0"))
        with pytest.raises(Unusable, match="listens on all addresses"):
            await server.start()
        assert not await server.is_healthy()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("vllm serve", "must be a list"),
        ([], "must be a list"),
        (["vllm"], "must have {port}"),
        (["vllm", "--host", "0.0.0.0", "--port", "{port}"], "loopback only"),
    ],
)
def test_commands_that_make_no_sense_are_errors(command, words):
    with pytest.raises(ValueError, match=words):
        LocalServer(command)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel kills it")
def test_it_ends_with_the_process_that_started_it():
    code = """
import asyncio, sys
from tests.llm.test_server import config
from gristmill.llm.server import RunningServer

async def main():
    server = RunningServer(config())
    await server.start()
    print(server._pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate()
    until = time.monotonic() + 30
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie":
        assert time.monotonic() < until
        time.sleep(0.05)
