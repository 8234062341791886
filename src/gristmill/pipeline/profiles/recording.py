"""Measure a finished run, and add it to the profile store: one append, and never an error of the run."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gristmill import __version__, fast_json
from gristmill.backends.base import RunRecord
from gristmill.backends.engine.memory import resident
from gristmill.logs import logger
from gristmill.pipeline.fingerprint import describe_stage
from gristmill.pipeline.profiles.clock import Clock
from gristmill.pipeline.profiles.machine import this_machine
from gristmill.pipeline.profiles.measured import PhaseMeasure, RunMeasure, StepMeasure
from gristmill.pipeline.profiles.store import ProfileStore, StoreError, store_path
from gristmill.secrets import without_secrets
from gristmill.stages.protocols import Sink, Source

if TYPE_CHECKING:
    from gristmill.backends.base import Executor
    from gristmill.pipeline.result import RunResult
    from gristmill.stages.core import ProcessingStage

_OF_DATA = ("file_paths", "blocksize", "files_per_partition", "limit", "sample", "read_kwargs")
"""Arguments of readers that say which data is read: measurements hold for other data too."""
_MOST_FILES = 2000


def store_run(stages: Sequence[ProcessingStage[Any, Any]], executor: Executor, result: RunResult, clock: Clock) -> None:
    """Add a run to the store. ``stages`` are those of the pipeline, without composites."""
    path = store_path()
    if path is None:
        return
    try:
        run = measured(stages, executor, result, clock)
        if run is not None:
            ProfileStore(path).add(run)
    except StoreError as error:
        logger.debug(str(error))  # a read-only home is no news to the user of a run
    except Exception as error:  # describing stages runs the user's code: a run must not fail because of its profile
        logger.debug(f"the run was not added to the profile store: {type(error).__name__}: {error}")


def measured(
    stages: Sequence[ProcessingStage[Any, Any]], executor: Executor, result: RunResult, clock: Clock
) -> RunMeasure | None:
    """Return what a run has measured; None if it was not complete, or a step finished no task."""
    record = result.record
    ledger = record.ledger
    if not result.ok or (ledger is not None and ledger.resumed):
        return None
    records = record.phases or [record]
    phases = [_phase(one) for one in records]
    if any(phase is None for phase in phases):
        return None
    decided = [*record.decided_s, *[0.0] * (len(records) - len(record.decided_s))]
    keys = keys_of(stages)
    found = [
        replace(
            phase, decided_s=seconds, steps=tuple(replace(step, key=keys.get(step.name, "")) for step in phase.steps)
        )
        for phase, seconds in zip(phases, decided, strict=True)
        if phase is not None
    ]
    output, excluded = _written(stages)
    return RunMeasure(
        name=without_secrets(record.name),
        phases=tuple(found),
        machine=this_machine(),
        key=key_of(stages),
        at=time.time(),
        version=__version__,
        executor=type(executor).__name__,
        documents=sum(account.read for account in ledger.files.values()) if ledger is not None else 0,
        source_bytes=ledger.bytes_done if ledger is not None else 0,
        total_s=clock.wall_s,
        cpu_s=clock.cpu_s,
        cpus=executor.limits().cpus or this_machine().cores,
        peak_memory_bytes=record.peak_memory_bytes,
        driver_bytes=resident(os.getpid())[1],
        workers=max((_most_workers(one) for one in records), default=1),
        output_bytes=output,
        excluded_bytes=excluded,
    )


def _phase(record: RunRecord) -> PhaseMeasure | None:
    load = record.measured_load() if record.measured_load is not None else None
    if load is None:
        return None
    profile = record.profile
    ledger = record.ledger
    source = ledger.bytes_done if ledger is not None else 0
    steps = []
    bytes_in = source or round(load.input_mb * 2**20 * load.inputs)
    for stats, stage in zip(record.steps, load.stages, strict=True):
        tasks = sum(one.tasks_done for one in stats.stages[:1])
        outputs = round(stage.outputs_per_input * tasks)
        bytes_out = round(stage.output_mb * 2**20 * outputs)
        known = profile.stages.get(stage.name) if profile is not None else None
        steps.append(
            StepMeasure(
                name=without_secrets(stage.name),
                tasks=tasks,
                items=stats.stages[0].items_in,
                outputs=outputs,
                busy_s=stage.mean_s * tasks,
                cv=stage.cv,
                error=stage.cv / max(1, stats.units) ** 0.5,
                setup_s=stage.setup_s,
                overhead_s=stage.overhead_s,
                bytes_in=bytes_in,
                bytes_out=bytes_out,
                cpus=stage.cpus,
                gpus=stage.gpus,
                gpu_memory_gb=stage.gpu_memory_gb,
                memory_gb=stage.memory_gb,
                batch_size=stage.batch_size,
                workers=stage.workers,
                chunk=stage.chunk,
                peak_worker_bytes=stats.peak_worker_bytes,
                settings=dict(known.settings) if known is not None else {},
            )
        )
        bytes_in = bytes_out
    return PhaseMeasure(
        tuple(steps),
        inputs=load.inputs,
        source_bytes=source,
        run_s=max(0.0, (record.last_output_s or record.wall_s) - record.loaded_s),
        peak_queue_bytes=record.peak_bytes_in_flight,
        start_s=load.start_s,
        leave_s=load.leave_s,
        tick_s=load.tick_s,
        autoscale_interval_s=load.autoscale_interval_s,
    )


def _most_workers(record: RunRecord) -> int:
    """Return the most workers that worked at one time, shared ones counted once."""
    load = record.measured_load() if record.measured_load is not None else None
    own = 0
    shared = 0
    for stats, stage in zip(record.steps, load.stages if load is not None else (), strict=False):
        most = max((n for _, n in stats.workers), default=0)
        if stage.gpus or stage.gpu_memory_gb or stage.workers is not None:
            own += most
        else:
            shared = max(shared, most)
    return max(1, own + shared)


def keys_of(stages: Sequence[ProcessingStage[Any, Any]]) -> dict[str, str]:
    """Return the keys of stages by name: hashes of their code and configuration."""
    return {stage.name: _hash(_described(stage)) for stage in stages}


def key_of(stages: Sequence[ProcessingStage[Any, Any]]) -> str:
    """Return the key of a pipeline: equal for pipelines whose stages do the same, on any data."""
    return _hash([_described(stage) for stage in stages])


def _described(stage: ProcessingStage[Any, Any]) -> dict[str, Any]:
    described = describe_stage(stage)
    if isinstance(stage, Source):
        arguments = described.get("arguments", {})
        described = {
            **{key: value for key, value in described.items() if key != "files"},
            "arguments": {key: value for key, value in arguments.items() if key not in _OF_DATA},
        }
    if isinstance(stage, Sink):
        described = {key: value for key, value in described.items() if key != "files"}
    return described | {"gristmill": __version__, "asks": str(stage.resources), "batch_size": stage.batch_size}


def _hash(value: Any) -> str:
    return hashlib.blake2b(fast_json.dumps(value), digest_size=12).hexdigest()


def _written(stages: Sequence[ProcessingStage[Any, Any]]) -> tuple[int, int]:
    """Return the bytes of the output and of excluded documents; -1 if they are not known or would take long to add."""
    writer = next((stage for stage in stages if isinstance(stage, Sink)), None)
    if writer is None or not writer.folder.is_local:
        return -1, -1
    from gristmill.ledger.excluded import EXCLUDED

    root = writer.folder.path()
    return _size(root, writer.extension), _size(os.path.join(root, EXCLUDED), "")


def _size(folder: str, extension: str) -> int:
    total = 0
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= _MOST_FILES:
                    return -1
                if entry.name.endswith(extension) and entry.is_file(follow_symlinks=False):
                    total += entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0
    return total
