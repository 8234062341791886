"""What the driver and the supervisor say to each other. The first value of a message is its kind, a plain number."""

from __future__ import annotations

RUN_MARK = "GRISTMILL_RUN"
"""The environment variable that names the run to which a process belongs."""
WORKER_MARK = "GRISTMILL_WORKER"
"""The one that names the worker that started it, or `NODE_MARK`."""
NODE_MARK = "node"
CUT_OFF_STATUS = 76
"""The exit status of a worker that cannot reach its driver any more."""
CUT_OFF = "a stage closed the worker's connection to the driver: it may close only descriptors that it opened itself"


class ToSupervisor:
    INIT = 0
    """sys.path, pickled steps (each a tuple of stages) and task classes, `Limits`"""
    START = 1
    """worker, slot, step (-1: shared), cpus, gpu indices, devices, gpu_share; beside it: socket, arena"""
    SET_UP_NODE = 2
    """worker, step; beside it: socket"""
    QUIT = 3
    IMPORT = 4
    """modules that the next run needs"""
    CLEAR = 5
    """a run has ended, and another may begin"""


class FromSupervisor:
    LOADED = 0
    """error, empty if the stages could be loaded"""
    STARTED = 1
    """worker, pid"""
    EXITED = 2
    """worker, wait status"""
    UNABLE = 3
    """error: a process could not be started"""
