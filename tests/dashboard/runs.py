"""Runs with a live page, and requests to it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.dashboard.attachment import Dashboard, open_dashboard
from gristmill.pipeline import Pipeline
from gristmill.pipeline.monitoring import DashboardOptions
from gristmill.stages.core import ProcessingStage
from gristmill.stages.resources import Resources
from gristmill.tasks import Task

WAIT_S = 240
"""How long a test waits for what must happen: no limit on the time that it takes, which depends on the machine."""


@dataclass
class Number(Task[int]):
    data: int = 0


class Sleep(ProcessingStage[Number, Number]):
    """Takes as long as a file says, so that a test can shift the load during a run."""

    resources = Resources(cpus=0.5, gpus=1)  # so that three steps have a worker each on two CPUs

    def __init__(self, name: str, control: Path, fails_on: int | None = None) -> None:
        self.name = name
        self.control = str(control)
        self.fails_on = fails_on

    def process(self, task: Number) -> Number:
        if task.data == self.fails_on:
            raise ValueError(f"<script>document.title = 'hacked'</script> \u202e {task.data}")
        time.sleep(float(Path(self.control, self.name).read_text()))
        return task


class Control:
    """The speeds of stages, and the end of their source."""

    def __init__(self, folder: Path, **seconds: float) -> None:
        self.folder = folder
        self.stopped = threading.Event()
        for name, value in seconds.items():
            self.set(name, value)

    def set(self, name: str, seconds: float) -> None:
        partial = self.folder / f"{name}.new"
        partial.write_text(str(seconds))
        os.replace(partial, self.folder / name)

    def numbers(self) -> Iterator[Number]:
        n = 0
        while not self.stopped.is_set():
            yield Number(data=n)
            n += 1


@dataclass
class Running:
    """A run in a thread of its own."""

    url: str
    thread: threading.Thread
    errors: list[BaseException] = field(default_factory=list)

    def join(self) -> None:
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive(), "the run did not end"


def wait_until(condition: Callable[[], Any], what: str = "") -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what or condition}"
        time.sleep(0.05)
    return found


@contextmanager
def running(
    pipeline: Pipeline, tasks: Any = None, executor: Any = None, stop: Callable[[], Any] = lambda: None, **options: Any
) -> Iterator[Running]:
    """Run a pipeline with a live page, until the block ends and ``stop`` has made the run end."""
    opened: list[Dashboard] = []

    def open_it(*args: Any, **kwargs: Any) -> Dashboard:
        opened.append(open_dashboard(*args, **kwargs))
        return opened[-1]

    made = Running("", threading.Thread(target=lambda: run(), daemon=True))

    def run() -> None:
        try:
            one = executor or LocalExecutor({"num_cpus": 2, "num_gpus": 3, "view": "off"})
            pipeline.run(one, tasks, keep_outputs=False, dashboard=DashboardOptions(**options))
        except BaseException as error:
            made.errors.append(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gristmill.dashboard.attachment.open_dashboard", open_it)
        made.thread.start()
        wait_until(lambda: opened or made.errors, "the page")
    assert opened, made.errors
    made.url = opened[0].url
    try:
        yield made
    finally:
        stop()
        made.join()


def get(url: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body; redirects are not followed."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port or 0, timeout=30)
    try:
        connection.putrequest("GET", parts.path + (f"?{parts.query}" if parts.query else ""), skip_host=True)
        for name, value in {"Host": parts.netloc, **(headers or {})}.items():
            if value:
                connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def get_json(url: str) -> Any:
    status, _, body = get(url)
    assert status == 200, body
    return json.loads(body)
