"""Measure a command and the processes it starts: wall time, CPU time, peak memory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Measured:
    """The figures of a run of a command."""

    wall_s: float
    cpu_s: float
    """Of the command and all processes that it waited for, or of all that were seen, if that is more."""
    peak_bytes: int
    """The most proportional set size (PSS) of all its processes together; looked at ten times a second."""
    load: float
    """The load average of the machine when it began."""
    output: str


def measured(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Measured:
    """Run a command in a process of its own. Raise with its output if it fails."""
    load = os.getloadavg()[0]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **(environment or {})})
        peak, ticks = 0, dict[int, int]()
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak = max(peak, memory_of(process.pid))
            ticks.update(cpu_ticks(process.pid))
            time.sleep(0.1)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        file.seek(0)
        output = file.read().decode(errors="replace")
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{output[-3000:]}")
    waited = ended[2].ru_utime + ended[2].ru_stime
    seen = sum(ticks.values()) / os.sysconf("SC_CLK_TCK")
    return Measured(wall, max(waited, seen), peak, load, output)


def cpu_ticks(root: int) -> dict[int, int]:
    """Return the CPU time so far of a process and its descendants, by their ids, in ticks of the clock."""
    found = {}
    for process in descendants(root):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[process] = int(fields[11]) + int(fields[12])
    return found


def memory_of(root: int) -> int:
    """Return the proportional set sizes of a process and its descendants, in bytes."""
    total = 0
    for process in descendants(root):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def descendants(root: int) -> Iterator[int]:
    """Yield a process and those that it, and they, started."""
    yield root
    try:
        for thread in os.listdir(f"/proc/{root}/task"):
            for child in Path(f"/proc/{root}/task/{thread}/children").read_text().split():
                yield from descendants(int(child))
    except OSError:
        return
