"""How much memory the processes of a run use."""

from __future__ import annotations

import os
from collections.abc import Iterable

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> tuple[int, int]:
    """Resident bytes of a process, and how many of them are its own (not shared with files); zeros if it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, total, shared, *_ = file.read().split()
    except (OSError, ValueError):
        return 0, 0
    return int(total) * _PAGE, (int(total) - int(shared)) * _PAGE


def proportional(pids: Iterable[int]) -> int:
    """Bytes of several processes with what they share counted once (the sum of their PSS)."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                for line in file:
                    if line.startswith(b"Pss:"):
                        total += int(line.split()[1]) * 1024
                        break
        except (OSError, ValueError):
            continue
    return total
