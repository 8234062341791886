"""Children and environments of processes, as the system reports them."""

from __future__ import annotations

import contextlib
import os


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
