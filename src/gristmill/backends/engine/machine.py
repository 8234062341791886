"""The capacity of this machine, as far as this process may use it, and its processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from functools import cache
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
LOGICAL_GPU_BYTES = 80 << 30


def cpu_count() -> float:
    """CPUs this process may use: affinity and cgroup quota respected; may be a fraction."""
    count = float(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)
    for quota, period in _cpu_quotas():
        if quota > 0 and period > 0:
            count = min(count, quota / period)
    return count


def _cpu_quotas() -> list[tuple[int, int]]:
    found = []
    for folder in _cgroup_folders("cpu"):
        text = _read(folder / "cpu.max").split()
        if len(text) == 2 and text[0] != "max":
            found.append((int(text[0]), int(text[1])))
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota and period:
            found.append((int(quota), int(period)))
    return found


def memory_bytes() -> int:
    """Memory this process may use: that of the machine or of its cgroup, whichever is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for folder in _cgroup_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit():
                total = min(total, int(text))
    return total


def oom_kills() -> int:
    """How often the system has killed for lack of memory, in this cgroup; if that is not known, on this machine."""
    for folder in _cgroup_folders("memory"):
        for line in _read(folder / "memory.events").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    for line in _read(Path("/proc/vmstat")).splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def _cgroup_folders(controller: str) -> list[Path]:
    """The folders that hold limits for this process, from its own group up to the root."""
    folders = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root = _CGROUP
        elif controller in controllers.split(","):
            root = _CGROUP / controller
        else:
            continue
        group = root / path.lstrip("/")
        while group != root and root in group.parents:
            folders.append(group)
            group = group.parent
        folders.append(root)
    return folders


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def gpus() -> tuple[tuple[str, int], ...]:
    """The visible GPUs: the name by which a process selects each, and its memory in bytes."""
    found = _all_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(dict.fromkeys(found.values()))
    names = [x.strip() for x in visible.split(",") if x.strip()]
    return tuple((name, found[name][1]) for name in names if name in found)


@cache
def _all_gpus() -> dict[str, tuple[str, int]]:
    """Index and memory of each GPU, by its index and by its UUID."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    import subprocess  # the supervisor imports this module, and needs no subprocess: 9 ms

    command = [tool, "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    found: dict[str, tuple[str, int]] = {}
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            index, uuid, mebibytes = (x.strip() for x in line.split(","))
            found[index] = found[uuid] = (index, int(mebibytes) << 20)
    return found


def devices(count: int | None, memory_gb: float | None) -> tuple[tuple[str, int], ...]:
    """The GPUs of a run: the real ones, or so many logical ones, which share the real ones in turn if there are any."""
    real = gpus() if count is None or count > 0 else ()
    n = len(real) if count is None else count
    size = None if memory_gb is None else int(memory_gb * 2**30)
    return tuple(
        (real[i % len(real)][0], size or real[i % len(real)][1]) if real else (str(i), size or LOGICAL_GPU_BYTES)
        for i in range(n)
    )


def children_of(pid: int) -> list[int]:
    """The direct children of a process of this machine."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    children = []
    for task in tasks:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
            children += [int(x) for x in file.read().split()]
    return children


def descendants_of(pid: int) -> list[int]:
    """All descendants of a process that living processes connect to it."""
    found = children_of(pid)
    for child in found:
        found += children_of(child)  # the loop continues with what is added
    return found


def environment_of(pid: int) -> list[bytes]:
    """``NAME=value`` of each variable with which the program of a process was started; forking alone starts none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []
