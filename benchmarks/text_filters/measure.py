"""Runs a command and measures it with everything that it starts: time, CPU, memory."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

FIGURES = "FIGURES "
"""A line of output that begins so holds what the command says of itself, as JSON. ``ready`` is the time (seconds since
1970) at which it was loaded and could begin to start workers or to read; ``kept`` counts the documents it kept."""

_SUBREAPER = 36
_SHORTEST_S = 0.05
_COST = 20
"""A look at the memory is followed by a pause that is so many times as long: looking takes 5 % of a core at most."""


@dataclass
class Measured:
    """One run of a command. Seconds and bytes; of the whole tree of processes, except for ``wall_s``."""

    name: str
    code: int | None
    wall_s: float
    cpu_s: float
    peak_pss: int
    """The memory of processes: shared pages counted once; files in memory that are open counted in full."""
    peak_rss: int
    startup_s: float | None = None
    """From the start of the command until it reported that it was ready."""
    timed_out: bool = False
    load_before: float = 0.0
    """Runnable processes on the machine in the minute before: other work makes wall times longer."""
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether it ended normally and reported what it kept."""
        return self.code == 0 and "kept" in self.figures

    @property
    def work_s(self) -> float | None:
        return None if self.startup_s is None else self.wall_s - self.startup_s


def measure(
    name: str, command: list[str], log: Path, timeout_s: float = 1800, env: dict[str, str] | None = None
) -> Measured:
    """Run a command to its end, or to the end of its time; end whatever it leaves running."""
    # Servers that a command leaves behind become children of this process: they are counted, and ended.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    log.parent.mkdir(parents=True, exist_ok=True)
    cpu: dict[int, float] = {}
    peak_pss = peak_rss = 0
    reaped = _reaped_cpu()
    load = os.getloadavg()[0]
    began = time.time()
    with log.open("wb") as out:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as they are when installed by pip
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    timed_out = False
    while True:
        look_began = time.monotonic()
        pss, rss = _look(cpu)
        peak_pss, peak_rss = max(peak_pss, pss), max(peak_rss, rss)
        pause = max(_SHORTEST_S, _COST * (time.monotonic() - look_began))
        try:
            process.wait(pause)
        except subprocess.TimeoutExpired:
            if time.time() - began > timeout_s:
                timed_out = True
                break
        else:
            break
    wall = time.time() - began
    _look(cpu)
    _end_the_rest()
    # Processes that were waited for are known exactly, the others as of the last measurement.
    cpu_s = max(sum(cpu.values()), _reaped_cpu() - reaped)
    figures = _figures(log)
    ready = figures.get("ready")
    return Measured(
        name=name,
        code=process.returncode,
        wall_s=wall,
        cpu_s=cpu_s,
        peak_pss=peak_pss,
        peak_rss=peak_rss,
        startup_s=None if ready is None else ready - began,
        timed_out=timed_out,
        load_before=load,
        figures=figures,
    )


def _reaped_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _look(cpu: dict[int, float]) -> tuple[int, int]:
    pss = rss = 0
    files: dict[tuple[int, int], int] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
            rss += process.memory_info().rss
        except psutil.Error:
            continue
        cpu[process.pid] = times.user + times.system
        pss += _pss(process.pid)
        files.update(_files_in_memory(process.pid))
    return pss + sum(files.values()), rss


def _pss(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _files_in_memory(pid: int) -> dict[tuple[int, int], int]:
    """Anonymous files that a process has open, with the bytes that are in them: no PSS shows those not mapped."""
    found: dict[tuple[int, int], int] = {}
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            if os.readlink(entry.path).startswith("/memfd:"):
                status = os.stat(entry.path)
                found[status.st_dev, status.st_ino] = status.st_blocks * 512
    except OSError:
        pass
    return found


def _end_the_rest() -> None:
    for end in (psutil.Process.terminate, psutil.Process.kill):
        rest = psutil.Process().children(recursive=True)
        for process in rest:
            try:
                end(process)
            except psutil.Error:
                pass
        psutil.wait_procs(rest, timeout=8)


def _figures(log: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith(FIGURES):
            figures.update(json.loads(line.removeprefix(FIGURES)))
    return figures
