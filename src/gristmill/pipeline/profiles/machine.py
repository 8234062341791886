"""The kind of this machine: runs on other kinds say little about how fast it is."""

from __future__ import annotations

import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

from gristmill.backends.engine import machine
from gristmill.pipeline.profiles.measured import MachineKind


@cache
def this_machine() -> MachineKind:
    """Return the CPU model, the CPUs that this process may use, and the models of the GPUs."""
    return MachineKind(_cpu_model(), machine.cpu_count(), _gpu_models())


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model") and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown"


def _gpu_models() -> tuple[str, ...]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    command = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in text.splitlines() if line.strip())
