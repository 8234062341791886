"""The steps and limits of a run."""

from __future__ import annotations

from dataclasses import dataclass

UNIT = 1_000_000
"""One CPU, one GPU or a factor of one, in the integer millionths that all arithmetic uses."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Measurements of a step by an earlier run. They need not be exact."""

    service_us: int
    setup_us: int = 0
    fan_out: int = UNIT
    """Outputs per task in millionths."""


@dataclass(frozen=True, slots=True)
class StepSpec:
    """The needs of one step."""

    name: str
    cpu: int = UNIT
    gpu: int = 0
    """Millionths of a GPU; a whole number of GPUs above one."""
    gpu_memory: int = 0
    """Bytes on one GPU; becomes a share of the GPU where a worker is placed."""
    memory: int = 0
    batch_size: int = 1
    workers: int | None = None
    """A fixed number of workers, or None to let the balancer decide."""
    dedicated: bool = False
    """Has workers of its own even without GPUs or a fixed number."""
    has_setup: bool = False
    node_setup: bool = False
    max_attempts: int = 3
    slices: bool = True
    """A task that fails may be run in slices, to find the item at fault."""
    timeout_us: int | None = None
    lifetime_us: int | None = None
    restart_interval_us: int = 0
    prior: Prior | None = None
    in_flight: int = 0
    """Units that may be begun in a worker at one time, if its stage runs asynchronously; 0: it does not, and a worker
    runs one unit at a time. Such a step has dedicated workers and a batch size of one."""
    streams: bool = False
    """Units in flight may deliver chunks and be suspended."""

    def __post_init__(self) -> None:
        if self.in_flight and (not self.dedicated or self.batch_size != 1):
            raise ValueError(f"'{self.name}': units in flight need dedicated workers and a batch size of one")

    @property
    def uses_gpu(self) -> bool:
        return self.gpu > 0 or self.gpu_memory > 0

    @property
    def needs_nothing(self) -> bool:
        """Whether any number of workers fits on a node."""
        return not (self.cpu or self.memory or self.uses_gpu)

    @property
    def has_own_workers(self) -> bool:
        return self.dedicated or self.uses_gpu or self.workers is not None


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits and policy of a run."""

    budget: int
    """Bytes of tasks that may wait or run at one time, predicted outputs included."""
    autoscale_interval_us: int = 180 * UNIT
    plan_at_once: int = 256
    """Nodes x steps up to which plans are made at once; larger ones are made beside the loop (`Solve`)."""
    batch_mode: bool = False
    ignore_failures: bool = False
    shared_lifetime_us: int | None = None
    """Shared workers older than this are replaced."""
    shared_restart_interval_us: int = 0
    task_overhead: int = 1024
    """Bytes that a task costs by merely existing; bounds the number of tiny tasks."""
    prefetch_us: int = 20_000
    """Work that should wait in each worker, so that it never waits for the driver."""
    max_prefetch: int = 128
    setup_attempts: int = 3
    setup_timeout_us: int | None = None
    """A setup that takes longer has failed."""
    isolated_kills: int = 20
    """A task that was killed from outside this often, alone in a fresh worker, is given up after all. The run ends when
    as many workers in a row die at their start, in a setup, or while they have nothing to do."""
    unexplained_losses: int = 3
    """A unit is suspected after this many deaths of workers that had it and left no cause."""
