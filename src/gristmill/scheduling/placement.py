"""Placement of workers: CPUs, memory, whole and shared GPUs of one node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gristmill.scheduling.settings import UNIT, StepSpec


@dataclass(frozen=True, slots=True)
class Placement:
    """The resources that a worker occupies on its node."""

    cpu: int = 0
    memory: int = 0
    gpus: tuple[int, ...] = ()
    gpu_share: int = 0
    """Millionths of each of its GPUs."""


class Capacity:
    """The free resources of a node. GPUs are shared by packing: the fullest GPU that still fits is taken first."""

    __slots__ = ("cpu", "gpu_free", "gpu_memory", "memory")

    def __init__(self, cpu: int, memory: int, gpu_memory: Sequence[int], gpu_free: Sequence[int] | None = None) -> None:
        self.cpu = cpu
        self.memory = memory
        self.gpu_memory = tuple(gpu_memory)
        self.gpu_free = list(gpu_free) if gpu_free is not None else [usable(x) for x in self.gpu_memory]

    def copy(self) -> Capacity:
        return Capacity(self.cpu, self.memory, self.gpu_memory, self.gpu_free)

    def find(self, spec: StepSpec) -> Placement | None:
        """A place for a dedicated worker of this step, or None. Takes nothing."""
        if spec.cpu > self.cpu or spec.memory > self.memory:
            return None
        if not spec.uses_gpu:
            return Placement(spec.cpu, spec.memory)
        if spec.gpu > UNIT:
            whole = [i for i, free in enumerate(self.gpu_free) if free == UNIT][: spec.gpu // UNIT]
            if len(whole) * UNIT < spec.gpu:
                return None
            return Placement(spec.cpu, spec.memory, tuple(whole), UNIT)
        best = -1
        best_share = 0
        for i, free in enumerate(self.gpu_free):
            share = gpu_share(spec, self.gpu_memory[i])
            if share <= free and (best < 0 or free < self.gpu_free[best]):
                best, best_share = i, share
        return Placement(spec.cpu, spec.memory, (best,), best_share) if best >= 0 else None

    def fits(self, p: Placement) -> bool:
        return p.cpu <= self.cpu and p.memory <= self.memory and all(self.gpu_free[i] >= p.gpu_share for i in p.gpus)

    def take(self, p: Placement) -> None:
        self.cpu -= p.cpu
        self.memory -= p.memory
        for i in p.gpus:
            self.gpu_free[i] -= p.gpu_share

    def give(self, p: Placement) -> None:
        self.cpu += p.cpu
        self.memory += p.memory
        for i in p.gpus:
            self.gpu_free[i] += p.gpu_share

    def resize(self, cpu: int, memory: int, gpu_memory: Sequence[int]) -> None:
        """Add CPU and memory, and set the GPUs. What is occupied stays so: the free amount may fall below zero."""
        self.cpu += cpu
        self.memory += memory
        n = max(len(self.gpu_memory), len(gpu_memory))
        before = [*self.gpu_memory, *[-1] * (n - len(self.gpu_memory))]
        after = [*gpu_memory, *[-1] * (n - len(gpu_memory))]
        self.gpu_free += [0] * (n - len(self.gpu_free))
        for i in range(n):
            self.gpu_free[i] += usable(after[i]) - usable(before[i])
        self.gpu_memory = tuple(after)


def usable(gpu_memory: int) -> int:
    """Return the millionths of a GPU that the run may use: none if its memory is negative."""
    return UNIT if gpu_memory >= 0 else 0


def gpu_share(spec: StepSpec, gpu_memory: int) -> int:
    """Millionths of a GPU with this memory that a worker takes; above one if the GPU is too small."""
    if spec.gpu:
        return spec.gpu
    if gpu_memory <= 0:
        return UNIT + 1
    return max(1, -(-spec.gpu_memory * UNIT // gpu_memory))


def misfit(spec: StepSpec, nodes: Iterable[tuple[int, int, Sequence[int]]]) -> str:
    """Return why a step fits on none of these empty nodes (CPU, memory, memory of each GPU), or an empty string."""
    nodes = list(nodes)
    if any(Capacity(*node).find(spec) for node in nodes):
        return ""
    reasons = []
    most_cpu = max((n[0] for n in nodes), default=0)
    most_memory = max((n[1] for n in nodes), default=0)
    most_gpus = max((len(n[2]) for n in nodes), default=0)
    largest_gpu = max((g for n in nodes for g in n[2]), default=0)
    if spec.cpu > most_cpu:
        reasons.append(f"it needs {spec.cpu / UNIT:g} CPUs and the largest node has {most_cpu / UNIT:g}")
    if spec.memory > most_memory:
        reasons.append(
            f"it needs {spec.memory / 2**30:.3g} GB of memory and the largest node has {most_memory / 2**30:.3g}"
        )
    if spec.uses_gpu and not most_gpus:
        reasons.append("it needs a GPU and there is none (num_gpus sets a logical number)")
    elif -(-spec.gpu // UNIT) > most_gpus:
        reasons.append(f"it needs {spec.gpu / UNIT:g} GPUs on one node and the most a node has is {most_gpus}")
    elif spec.gpu_memory > largest_gpu:
        reasons.append(
            f"it needs {spec.gpu_memory / 2**30:.3g} GB of GPU memory and the largest GPU has {largest_gpu / 2**30:.3g}"
        )
    return f"'{spec.name}' cannot run here: " + ("; ".join(reasons) or "no node has all that it needs together")
