"""The messages between the driver and the supervisor, and the marks of a run's processes."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

from gristmill.backends.engine.protocol import Codec

RUN_MARK = "GRISTMILL_RUN"
"""The environment variable that names the run to which a process belongs."""
WORKER_MARK = "GRISTMILL_WORKER"
"""The one that names the worker that started it, or `NODE_MARK`."""
NODE_MARK = "node"
CUT_OFF_STATUS = 76
"""The exit status of a worker that cannot reach its driver any more."""
CUT_OFF = "a stage closed the worker's connection to the driver: it may close only descriptors that it opened itself"


# To the supervisor --------------------------------------------------------------------------------------------------


class LoadStages(NamedTuple):
    path: list[str]
    """`sys.path` of the driver."""
    steps: bytes
    """The pickled steps, each a tuple of stages, with task classes and what is needed to account for documents."""
    limits: tuple[int, int, bool, int, float | None]
    """The fields of `Limits`."""


class ForkWorker(NamedTuple):
    """A socket and an arena travel beside this message."""

    identity: tuple[Any, ...]
    """The fields of `WorkerIdentity`."""


class ForkNodeSetup(NamedTuple):
    """Run `setup_on_node` of a step. A socket travels beside this message."""

    worker: int
    step: int


class ImportModules(NamedTuple):
    """Import what the next run needs."""

    modules: list[str]


class EndRun(NamedTuple):
    """The run has ended, and another may follow."""


class Quit(NamedTuple):
    """No other run follows."""


# From the supervisor ------------------------------------------------------------------------------------------------


class Loaded(NamedTuple):
    """The stages are loaded. ``error`` is empty if that succeeded."""

    error: str


class Forked(NamedTuple):
    worker: int
    pid: int


class Exited(NamedTuple):
    worker: int
    status: int
    """As `os.waitpid` returns it."""


class CannotFork(NamedTuple):
    error: str


ToSupervisor = LoadStages | ForkWorker | ForkNodeSetup | ImportModules | EndRun | Quit
FromSupervisor = Loaded | Forked | Exited | CannotFork

TO_SUPERVISOR: Codec[ToSupervisor] = Codec(get_args(ToSupervisor), {})
FROM_SUPERVISOR: Codec[FromSupervisor] = Codec(get_args(FromSupervisor), {})
