"""What to change: block size, batch sizes, bands per iteration, nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from gristmill.capacity.jobs import PlannedJob
from gristmill.capacity.predict import least_s, makespan_s
from gristmill.metrics.format import size
from gristmill.scheduling.simulator.loads import GB, NodeModel
from gristmill.stages.barrier import BarrierStage, InputEstimate
from gristmill.stages.deduplication.cost import bands_at_once
from gristmill.stages.deduplication.fuzzy.stage import FuzzyDeduplication

BLOCKS = tuple(1 << n for n in range(20, 29, 2))
"""Sizes of blocks that are compared: 1, 4, 16, 64 and 256 MiB."""
_GAIN = 0.03
_OVERHEAD = 0.05
_MOST_NODES = 4096


@dataclass(frozen=True, slots=True)
class BlockAdvice:
    """The size of blocks with which the job ends soonest within the memory of a node."""

    block_bytes: int
    seconds: float
    gain: float
    """By what share it ends sooner than with the blocks that it has."""
    fits: bool
    """Whether the blocks that it has fit the memory of a node."""

    @property
    def text(self) -> str:
        if not self.fits:
            return f"blocksize {size(self.block_bytes)}: with the present one, workers need more memory than a node has"
        if self.gain < _GAIN:
            return "blocksize: keep it; no other one is faster by 3 % or more"
        return f"blocksize {size(self.block_bytes)}: {self.gain:.0%} faster"


def memory_of(job: PlannedJob, workers: int) -> int:
    """Return the memory of a node: of the driver and of its workers, with blocks of the job's size."""
    run = job.run
    worker = max(0.0, (run.peak_memory_bytes - run.driver_bytes) / max(1, run.workers))
    phase = run.phases[0]
    if phase.source_bytes and job.source_bytes:
        worker += run.block_memory * (job.bytes_per_input - phase.source_bytes / phase.inputs)
    return round(run.driver_bytes + workers * max(worker, 0.0))


def block_size(job: PlannedJob, workers: int) -> BlockAdvice | None:
    """Compare sizes of blocks; None for a job that does not read blocks."""
    if not job.source_bytes or not job.run.phases[0].source_bytes:
        return None
    present = makespan_s(job)
    memory = min(node.memory for node in job.nodes)
    present_fits = memory_of(job, workers) <= memory
    best: tuple[float, int] | None = None
    for candidate in BLOCKS:
        other = job.with_blocks(candidate)
        if memory_of(other, workers) > memory or candidate > 2 * job.source_bytes:
            continue
        seconds = makespan_s(other)
        if best is None or seconds < best[0] * (1 - _GAIN / 3):
            best = seconds, candidate
    if best is None:
        return None
    return BlockAdvice(best[1], best[0], 1 - best[0] / present if present else 0.0, present_fits)


def batch_sizes(job: PlannedJob) -> list[str]:
    """Return steps whose workers wait for messages, with the batch size that makes this rare."""
    lines = []
    for phase in job.run.phases:
        for step in phase.steps:
            wait, work = step.overhead_s, step.service_s * step.batch_size
            if step.tasks < 20 or wait < _OVERHEAD * work or not (step.uses_gpu or step.workers):
                continue
            batch = min(256, ceil(wait / (_OVERHEAD * step.service_s)))
            if batch > step.batch_size:
                lines.append(
                    f"batch_size {batch} for {step.name!r}: its workers wait {wait * 1e3:.1f} ms for each batch of "
                    f"{work * 1e3:.1f} ms"
                )
    for phase in job.run.phases:
        for step in phase.steps:
            lines += [
                f"{name} {value:,} for {step.name!r}: found in the sample" for name, value in step.settings.items()
            ]
    return lines


@dataclass(frozen=True, slots=True)
class BandsAdvice:
    """Bands of fuzzy deduplication that are compared at the same time."""

    stage: str
    bands_per_iteration: int
    num_bands: int
    memory_bytes: int
    """Forecast of the deduplication, on the node with the most memory."""

    @property
    def text(self) -> str:
        iterations = ceil(self.num_bands / self.bands_per_iteration)
        return (
            f"bands_per_iteration {self.bands_per_iteration} for {self.stage!r}: {iterations} "
            f"iteration{'s' * (iterations != 1)} within {size(self.memory_bytes)}; the default does the same"
        )


def bands(barrier: BarrierStage, estimate: InputEstimate, node: NodeModel) -> BandsAdvice | None:
    """Return how many bands fit the memory of a node at the same time; None for other barriers."""
    if not isinstance(barrier, FuzzyDeduplication):
        return None
    memory = node.memory * 9 // 10
    count = bands_at_once(estimate.documents, barrier.num_bands, memory)
    expected = barrier.forecast(estimate, memory, max(1, int(node.cpus)), stored=False)
    return BandsAdvice(barrier.name, count, barrier.num_bands, expected.memory_bytes)


@dataclass(frozen=True, slots=True)
class MoreNodes:
    """What one more node of a kind brings."""

    node: NodeModel
    seconds: float
    gain: float


def one_more(job: PlannedJob) -> list[MoreNodes]:
    """Simulate the job with one more node of each kind."""
    present = makespan_s(job)
    found = []
    for node in dict.fromkeys(job.nodes):
        seconds = makespan_s(replace(job, nodes=(*job.nodes, node)))
        found.append(MoreNodes(node, seconds, 1 - seconds / present if present else 0.0))
    return found


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """The fewest nodes of a kind that end the job in time."""

    node: NodeModel
    nodes: int
    """0: no number of nodes does."""
    seconds: float


def cluster_sizes(job: PlannedJob, deadline_s: float) -> list[ClusterSize]:
    """Return for each kind of node the smallest cluster of it that meets a deadline."""
    return [_smallest(job, node, deadline_s) for node in dict.fromkeys(job.nodes)]


def _smallest(job: PlannedJob, node: NodeModel, deadline_s: float) -> ClusterSize:
    def on(count: int) -> PlannedJob:
        return replace(job, nodes=(node,) * count)

    low = _first(lambda count: least_s(on(count)) <= deadline_s, 0, 1)  # fewer cannot do it
    if low is None:
        return ClusterSize(node, 0, least_s(on(_MOST_NODES)))
    high, took, step = low, makespan_s(on(low)), max(1, low // 16)
    low -= 1
    while took > deadline_s:
        before, low = took, high
        high, step = high + step, step * 2
        took = makespan_s(on(high))
        if high > _MOST_NODES or (took > 0.99 * before and step > 4):  # more nodes do not help
            return ClusterSize(node, 0, min(took, before))
    while high - low > 1 and low >= 1:
        middle = (low + high) // 2
        now = makespan_s(on(middle))
        if now <= deadline_s:
            high, took = middle, now
        else:
            low = middle
    return ClusterSize(node, high, took)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the first number above ``low`` from which on something holds; None if there is none."""
    while not holds(high):
        low, high = high, high * 2
        if high > _MOST_NODES:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def describe(node: NodeModel) -> str:
    """Return a node as it is written on the command line.

    >>> describe(NodeModel(48, 8))
    '48c8g'
    """
    memory = f"{node.memory_gb:g}gb" if node.memory_gb and node.memory != 4 * node.cpus * GB else ""
    return f"{node.cpus:g}c" + (f"{node.gpus}g" if node.gpus else "") + memory


def total(nodes: Sequence[NodeModel]) -> str:
    """Return nodes as they are written on the command line."""
    kinds = dict.fromkeys(nodes)
    return ",".join(f"{sum(node == kind for node in nodes)}x{describe(kind)}" for kind in kinds)
