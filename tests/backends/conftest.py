"""Runs on real processes, and the law that nothing stays behind."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.pipeline.result import RunResult

Run = Callable[..., RunResult]


@pytest.fixture
def run() -> Run:
    """Run stages on tasks; keywords that `Pipeline.run` does not know are options of the executor."""

    def run(stages: list[Any], tasks: Any = None, *, fuse: bool = True, keep: bool | None = None, **config: Any) -> Any:
        executor = LocalExecutor(config={"view": "off", "num_cpus": 2, **config})
        return Pipeline("test", stages=stages).run(executor, initial_tasks=tasks, fuse=fuse, keep_outputs=keep)

    return run


@pytest.fixture
def of_run() -> Callable[[int], list[str]]:
    """The processes, wherever they are, that carry the mark of a run of this driver."""

    def of_run(driver: int) -> list[str]:
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    if f"GRISTMILL_RUN={driver}-".encode() in Path(f"/proc/{name}/environ").read_bytes():
                        found.append(f"{name}: {Path(f'/proc/{name}/cmdline').read_bytes()[:80]!r}")
                except OSError:
                    continue
        return found

    return of_run


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # what is there now is not looked through again: that would take longer than most tests
    before = os.listdir("/proc/self/fd")
    children = {p.pid for p in psutil.Process().children(recursive=True)}
    yield
    gc.collect()
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in children]
    assert not left, f"processes are left: {left}"
    until = time.monotonic() + 60
    while len(os.listdir("/proc/self/fd")) > len(before) and time.monotonic() < until:
        time.sleep(0.05)
    now = os.listdir("/proc/self/fd")
    assert len(now) <= len(before), f"descriptors are left: {_targets(set(now) - set(before))}"


def _targets(fds: set[str]) -> list[str]:
    found = []
    for fd in fds:
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return found
