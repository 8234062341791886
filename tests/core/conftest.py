"""An environment that hides other clusters of this machine, and that marks its processes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

VARIABLES = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@pytest.fixture(scope="module")
def ray_home() -> Iterator[Path]:
    """Ray's folder and home for the tests of a module. Its path is short: it holds sockets."""
    folder = Path(tempfile.mkdtemp(prefix="gmt-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("HOME", str(folder))
        yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def leftovers(ray_home: Path) -> Callable[[], list[str]]:
    """Return processes with this home in their environment, after they had time to end, and the folders in the home."""

    def find(patience_s: float = 120.0) -> list[str]:
        until = time.monotonic() + patience_s
        while (
            found := processes_in(ray_home) + [str(path) for path in ray_home.glob("gm-ray-*")]
        ) and time.monotonic() < until:
            time.sleep(0.1)
        return found

    return find


@pytest.fixture(scope="module")
def processes() -> Callable[[Path], list[str]]:
    """Return the processes whose RAY_TMPDIR is a folder: pid and command."""
    return processes_in


def processes_in(ray_home: Path) -> list[str]:
    mark = f"RAY_TMPDIR={ray_home}".encode()
    found = []
    for process in Path("/proc").iterdir():
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if words:  # a zombie has none
                    found.append(f"{process.name} {words[:120]}")
        except OSError:
            pass
    return found
