"""Plan a job: measure a sample or take a stored profile, simulate the whole job, and recommend."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gristmill.backends.local import LocalExecutor
from gristmill.capacity import advice
from gristmill.capacity.errors import CapacityError
from gristmill.capacity.fitting import fitted
from gristmill.capacity.gpus import gpu_kind
from gristmill.capacity.jobs import PlannedJob, check_gpus, gpu_speed
from gristmill.capacity.predict import Prediction, fits, predict
from gristmill.capacity.sampling import SampleLimits, sample, with_data
from gristmill.pipeline import Pipeline
from gristmill.pipeline.phases.forecast import estimate_input
from gristmill.pipeline.profiles.machine import this_machine
from gristmill.pipeline.profiles.measured import MeasureError, RunMeasure
from gristmill.pipeline.profiles.recording import key_of
from gristmill.pipeline.profiles.store import VARIABLE, ProfileStore, StoreError, store_path
from gristmill.scheduling.simulator.loads import GB, NodeModel
from gristmill.stages.barrier import BarrierStage, Forecast, InputEstimate
from gristmill.stages.text.io.reader.base import FileReader
from gristmill.tasks import Task

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is asked of a plan."""

    data: str | None = None
    nodes: Sequence[NodeModel] = ()
    """None: this machine."""
    gpu: str | None = None
    """Kind of the GPUs of the nodes; None: the same as measured."""
    cpu_speed: float = 1.0
    profile: str | None = None
    """None runs a sample; "auto" takes the stored profile of this pipeline; else a file."""
    limits: SampleLimits = field(default_factory=SampleLimits)
    deadline_s: float | None = None
    started_s: float = 0.0
    """What the program took to start and to load the pipeline."""
    store: bool = True


@dataclass(frozen=True)
class CapacityPlan:
    """The answer."""

    name: str
    run: RunMeasure
    job: PlannedJob
    prediction: Prediction
    memory_bytes: int
    """At most, of all processes on one node."""
    output_bytes: int
    """-1: not known. So for the next one."""
    excluded_bytes: int
    temporary_bytes: int
    blocks: advice.BlockAdvice | None
    batches: list[str]
    bands: list[advice.BandsAdvice]
    more: list[advice.MoreNodes]
    clusters: list[advice.ClusterSize]
    deadline_s: float | None
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        prediction = asdict(self.prediction)
        del prediction["phases_s"], prediction["decided_s"]
        return {
            "name": self.name,
            "nodes": advice.total(self.job.nodes),
            "inputs": self.job.inputs,
            "source_bytes": self.job.source_bytes,
            "documents": self.job.documents,
            **prediction,
            "phases_s": list(self.prediction.phases_s),
            "decided_s": list(self.prediction.decided_s),
            "bottleneck": asdict(self.prediction.bottleneck),
            "memory_bytes": self.memory_bytes,
            "output_bytes": self.output_bytes,
            "excluded_bytes": self.excluded_bytes,
            "temporary_bytes": self.temporary_bytes,
            "block_size": asdict(self.blocks) if self.blocks is not None else None,
            "batch_sizes": self.batches,
            "bands": [asdict(one) for one in self.bands],
            "one_more": [{**asdict(one), "node": advice.describe(one.node)} for one in self.more],
            "deadline_s": self.deadline_s,
            "clusters": [{**asdict(one), "node": advice.describe(one.node)} for one in self.clusters],
            "notes": self.notes,
            "measured": self.run.to_dict(),
        }


def plan_capacity(
    pipeline: Pipeline,
    request: PlanRequest,
    tasks: Sequence[Task[Any]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> CapacityPlan:
    """Plan a job. ``options`` are those of the local executor that runs the sample.

    Raise `CapacityError` if it cannot be planned, and `PlanError` for a pipeline or an input that is wrong.
    """
    kind = None if request.gpu is None else gpu_kind(request.gpu)
    flat = with_data(pipeline, request.data)
    checked = flat.plan()
    options = _local_options(flat, options or {})
    run, inputs, size = _measured(flat, request, tasks, options)
    run = replace(run, total_s=run.total_s + request.started_s)
    nodes = tuple(request.nodes) or (_this_node(options),)
    notes = [f"measured on {run.machine.name}" + _of_sample(run)]
    check_gpus(checked, run, nodes)
    speed, words = gpu_speed(run, kind)
    if words:
        notes.append(words)
    if kind is not None:
        nodes = tuple(replace(node, gpu_memory_gb=kind.memory_gb) for node in nodes)
    job = PlannedJob(run, inputs, size, nodes, speed, request.cpu_speed)
    fits(job)
    prediction = predict(job)
    forecasts = list(_forecasts(flat, job, prediction))
    memory_bytes = advice.memory_of(job, prediction.workers_per_node)
    memory_bytes = max([memory_bytes, *(expected.memory_bytes for _, _, expected in forecasts)])
    smallest = min(node.memory for node in nodes)
    if memory_bytes > smallest:
        notes.append("the memory of a node is smaller than what its workers need: see blocksize, or give fewer CPUs")
    node = max(nodes, key=lambda one: one.memory)
    found = [advice.bands(barrier, estimate, node) for barrier, estimate, _ in forecasts]
    return CapacityPlan(
        name=flat.name,
        run=run,
        job=job,
        prediction=prediction,
        memory_bytes=memory_bytes,
        output_bytes=_scaled(run.output_bytes, job),
        excluded_bytes=_scaled(run.excluded_bytes, job),
        temporary_bytes=sum(expected.disk_bytes for _, _, expected in forecasts),
        blocks=advice.block_size(job, prediction.workers_per_node),
        batches=advice.batch_sizes(job),
        bands=[one for one in found if one is not None],
        more=advice.one_more(job),
        clusters=advice.cluster_sizes(job, request.deadline_s) if request.deadline_s else [],
        deadline_s=request.deadline_s,
        notes=notes,
    )


def _of_sample(run: RunMeasure) -> str:
    if not run.sampled:
        return ", by a whole run"
    return f", by a sample of {run.documents:,} documents" if run.documents else ", by a sample of the tasks"


def _local_options(pipeline: Pipeline, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the sample's executor: those of the pipeline's file, if it is for this machine."""
    choice = pipeline.executor
    of_file = dict(choice.options) if choice is not None and choice.name == "local" else {}
    return {**of_file, **options}


def _this_node(options: Mapping[str, Any]) -> NodeModel:
    from gristmill.backends.engine.machine import devices

    config = LocalExecutor(options).config
    gpus = devices(config.num_gpus, config.gpu_memory_gb)
    memory = min((size for _, size in gpus), default=80 * GB) / GB
    return NodeModel(config.cpus, len(gpus), config.memory_limit_bytes / GB, memory)


def _measured(
    pipeline: Pipeline, request: PlanRequest, tasks: Sequence[Task[Any]] | None, options: Mapping[str, Any]
) -> tuple[RunMeasure, int, int]:
    """Return measurements, and the inputs and bytes of the whole job."""
    if request.profile is not None:
        run = _stored(pipeline, request.profile)
        if tasks is not None:
            return run, len(tasks), 0
        reader = pipeline.stages[0]
        if not isinstance(reader, FileReader):
            return run, run.phases[0].inputs, 0
        from gristmill.capacity.blocks import input_blocks

        blocks = input_blocks(reader)
        return run, len(blocks.whole), blocks.bytes
    found = sample(pipeline, tasks, options, request.limits)
    run = fitted(found)
    if request.store and (path := store_path()) is not None:
        try:
            ProfileStore(path).add(run)
        except StoreError:
            pass  # a plan needs no store
    return run, found.inputs, found.blocks.bytes if found.blocks is not None else 0


def _stored(pipeline: Pipeline, profile: str) -> RunMeasure:
    if profile != AUTO:
        return read_profile(profile)
    path = store_path()
    if path is None:
        raise CapacityError(f"the profile store is switched off by {VARIABLE}: leave out --profile to run a sample")
    store = ProfileStore(path)
    try:
        key = key_of(pipeline.stages)
        run = store.newest(key, this_machine()) or store.newest(key, None)
        damaged = store.read().damaged
    except StoreError as error:
        raise CapacityError(str(error)) from None
    if run is None:
        lost = f" ({damaged:,} of its lines are damaged)" if damaged else ""
        raise CapacityError(
            f"the profile store {path} has no run of this pipeline with these settings and this version{lost}: "
            "leave out --profile to run a sample"
        )
    return run


def read_profile(path: str) -> RunMeasure:
    """Return the measured run of a file that `gristmill plan --save-profile` wrote."""
    try:
        content = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise CapacityError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise CapacityError(f"{path} is not JSON: give what 'gristmill plan --save-profile FILE' wrote") from None
    try:
        return RunMeasure.of(content, path)
    except MeasureError as error:
        raise CapacityError(f"{error}. Give what 'gristmill plan --save-profile FILE' wrote, or 'auto'") from None


def _forecasts(
    pipeline: Pipeline, job: PlannedJob, prediction: Prediction
) -> list[tuple[BarrierStage, InputEstimate, Forecast]]:
    """Return the forecasts of stages that need all documents, for the largest node."""
    reader = pipeline.stages[0]
    if not isinstance(reader, FileReader):
        return []
    node = max(job.nodes, key=lambda one: one.memory)
    blocks = reader.source() or []
    found = []
    for n, stage in enumerate(pipeline.stages):
        if not isinstance(stage, BarrierStage):
            continue
        stored = n > 1
        estimate = estimate_input(stage, reader, blocks, pipeline.stages[1:] if stored else None)
        expected = (
            stage.forecast(estimate, node.memory, prediction.workers_per_node, stored) if estimate is not None else None
        )
        if estimate is not None and expected is not None:
            found.append((stage, estimate, expected))
    return found


def _scaled(size: int, job: PlannedJob) -> int:
    run = job.run
    if size < 0 or not job.source_bytes or not run.source_bytes:
        return -1
    return round(size * job.source_bytes / run.source_bytes)
