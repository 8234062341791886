"""The needs of a bridge from a Ray cluster: a node for the collector, and capacity for each step."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from gristmill.backends.base import Plan, Step
from gristmill.backends.bridge.collector import Collector
from gristmill.backends.bridge.process import NAMESPACE, RemoteCollector
from gristmill.backends.engine import machine
from gristmill.core import loss
from gristmill.errors import PlanError
from gristmill.logs import logger
from gristmill.stages.resources import Resources

_GB = 2**30


@contextmanager
def running_collector(ray: ModuleType, stages: bytes, attempts: list[int]) -> Iterator[RemoteCollector]:
    """Start a collector for one run, on the driver's node."""
    name = f"gristmill-{uuid.uuid4().hex[:12]}"
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    options = {"name": name, "namespace": NAMESPACE, "num_cpus": 0, "scheduling_strategy": here}
    actor = ray.remote(Collector).options(**options).remote(stages, attempts)
    message = loss.describe(ray.get_runtime_context().gcs_address, loss.TIMEOUT_S)

    def lost() -> None:
        """Report the loss: Ray Data and Xenna wait for the cluster until Ray ends this process."""
        logger.error("the run is stopped: %s", message)

    pulse = loss.Pulse(ray)
    watch = loss.LossWatch(lambda: pulse.answered_at, loss.TIMEOUT_S, lost)
    try:
        ray.get(actor.running.remote())
        yield RemoteCollector(name)
    finally:
        watch.close()
        pulse.close()
        ray.kill(actor)


# Resources ------------------------------------------------------------------------------------------------------


def gpus_in(ray: ModuleType) -> int:
    """Return the number of GPUs of the cluster."""
    return int(sum(node["Resources"].get("GPU", 0) for node in ray.nodes() if node["Alive"]))


def gpus_of(resources: Resources, gpu_bytes: int) -> float:
    """Return the GPUs of a worker: its request, or the share of a GPU that has the requested memory."""
    if not resources.gpu_memory_gb:
        return resources.gpus
    return round(min(1.0, resources.gpu_memory_gb * _GB / gpu_bytes), 4)


def smallest_gpu(ray: ModuleType, plan: Plan, gpu_memory_gb: float | None) -> int:
    """Return the bytes of the smallest GPU of the cluster if a step asks by memory, else 0."""
    asking = [step for step in plan.steps if step.resources.gpu_memory_gb]
    if not asking:
        return 0
    if gpu_memory_gb:
        return _checked(asking, int(gpu_memory_gb * _GB))
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    measure = ray.remote(num_cpus=0, max_retries=2)(_gpu_sizes)
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]
    asked = [measure.options(scheduling_strategy=strategy(node["NodeID"], soft=False)).remote() for node in nodes]
    sizes = [size for found in ray.get(asked) for size in found]
    if not sizes:
        raise PlanError(
            f"stage {asking[0].stages[0].name!r} asks for gpu_memory_gb, but how much the cluster's GPUs have is not "
            'known (no nvidia-smi on its GPU nodes): give it as the option "gpu_memory_gb", or ask for gpus.'
        )
    return _checked(asking, min(sizes))


def _gpu_sizes() -> list[int]:
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray hides GPUs from a task that asked for none
    return [size for _, size in machine.gpus()]


def _checked(asking: list[Step], size: int) -> int:
    for step in asking:
        if step.resources.gpu_memory_gb * _GB > size:
            raise PlanError(
                f"stage {step.stages[0].name!r} asks for gpu_memory_gb={step.resources.gpu_memory_gb:g}, but the "
                f"smallest GPU has {size / _GB:.3g} GB."
            )
    return size


def check_fits(step: Step, gpus: float, nodes: list[dict[str, Any]]) -> None:
    """Raise `PlanError` unless some node has the capacity for a worker of the step."""
    wanted = {"CPU": step.resources.cpus, "GPU": gpus, "memory": step.resources.memory_gb * _GB}
    if not any(all(node.get(name, 0.0) >= n for name, n in wanted.items()) for node in nodes):
        most = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in wanted}
        raise PlanError(
            f"stage {step.stages[0].name!r} asks for {step.resources}, but no node of the Ray cluster has that: "
            f"the largest have {most['CPU']:g} CPUs, {most['GPU']:g} GPUs, {most['memory'] / _GB:.3g} GB."
        )
