"""A worker uses memory that it has freed again, and does not request it from the system page by page."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.backends.local import LocalExecutor
from gristmill.pipeline import Pipeline
from gristmill.stages.core import ProcessingStage
from gristmill.tasks import Task

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep what they like")

ROOT = Path(__file__).parents[2]
ROUNDS = 40
PIECE = 12 << 20
PAGES = ROUNDS * 2 * PIECE // 4096


def faults() -> int:
    """How often the system had to find a page while a batch's pieces were allocated and freed."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(ROUNDS):
        [bytearray(PIECE // size) + b"x" for size in (1, 1, 2, 3)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


class Faults(ProcessingStage[Task[int], Task[int]]):
    def inputs(self) -> tuple[list[str], list[str]]:
        return [], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return [], []

    def process(self, task: Task[int]) -> Task[int]:
        return Numbers(data=faults(), task_id=task.task_id)


class Numbers(Task[int]):
    @property
    def num_items(self) -> int:
        return 1

    def validate(self) -> bool:
        return True


def test_a_worker_uses_memory_again() -> None:
    result = Pipeline("faults", stages=[Faults()]).run(LocalExecutor({"num_cpus": 1}), initial_tasks=[Numbers(data=0)])
    assert result.outputs[0].data < PAGES // 4


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_users_have_set_stays(name: str) -> None:
    code = (
        "from gristmill.backends.engine.library_limits import reuse_freed_memory; reuse_freed_memory();"
        "from tests.backends.test_allocator import faults; print(faults())"
    )
    value = "1" if name.startswith("MALLOC") else "glibc.malloc.mmap_threshold=131072"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), name: value}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) > PAGES // 2
