"""From the runs of a sample to one measured run, as if all blocks had the size that the job reads."""

from __future__ import annotations

from dataclasses import replace
from math import hypot

from gristmill.capacity.fit import Fit, fit, growth
from gristmill.capacity.sampling import Sample, SampleRun
from gristmill.pipeline.profiles.measured import PhaseMeasure, RunMeasure, StepMeasure

_MEMORY_TIMES = 3.0
"""Memory of a worker for each byte of a block, where no whole block was read."""


def fitted(sample: Sample) -> RunMeasure:
    """Return the measurements of the larger run, with times and memory for blocks of the size that the job reads."""
    main = sample.runs[-1]
    run = main.run
    phases = tuple(_phase(sample, number) for number in range(len(run.phases)))
    if sample.blocks is None:
        return replace(run, phases=phases)
    start, small = sample.runs[0], sample.runs[-2]
    peak, slope = _memory(small, main, sample.blocks.block_bytes)
    fixed, per_byte = growth((small.bytes, small.run.cpu_s), (main.bytes, run.cpu_s))
    loading = max(0.0, start.run.cpu_s - fixed - per_byte * start.bytes)
    run = replace(run, phases=phases, peak_memory_bytes=peak, block_memory=slope)
    return replace(
        run,
        total_s=run.total_s - main.run.outside_s + start.run.outside_s,
        cpu_s=run.cpu_s + loading,
        cpu_fixed_s=fixed + loading,
    )


def _phase(sample: Sample, number: int) -> PhaseMeasure:
    main = sample.runs[-1]
    phase = main.run.phases[number]
    units = [unit for run in sample.runs for unit in run.units[number]]
    steps = list(phase.steps)
    scale, spread = 1.0, 0.0
    if sample.blocks is not None and phase.inputs == len(main.blocks):
        scale = sample.blocks.mean_bytes * len(main.blocks) / main.bytes
        spread = sample.blocks.spread
    bytes_in = round(steps[0].bytes_in * scale)
    for i, step in enumerate(steps):
        own = [unit for unit in units if unit.step == i]
        if own and step.batch_size == 1 and not step.chunk:
            steps[i] = _step(step, fit(own), scale, spread)
        if i == 0 and step.outputs > 1.01 * step.tasks:
            scale, spread = 1.0, 0.0  # larger blocks make more tasks, not larger ones
    steps[0] = replace(steps[0], bytes_in=bytes_in)
    source = bytes_in if phase.source_bytes else 0
    return _decided(sample, number, replace(phase, steps=tuple(steps), source_bytes=source))


def _step(step: StepMeasure, found: Fit, scale: float, spread: float) -> StepMeasure:
    size = step.bytes_in / step.tasks * scale if found.rate else 0.0
    of_size = found.rate * size / found.at(size) if found.rate else 0.0
    return replace(
        step,
        busy_s=found.at(size) * step.tasks,
        fixed_s=found.fixed_s if found.rate else 0.0,
        cv=hypot(found.cv, spread * of_size),
        error=found.error,
        setup_s=step.setup_s + found.first_s,
        bytes_in=round(step.bytes_in * scale),
        bytes_out=round(step.bytes_out * scale),
    )


def _decided(sample: Sample, number: int, phase: PhaseMeasure) -> PhaseMeasure:
    """Split the time of a decision into a fixed part and one that grows with the documents."""
    first, main = sample.runs[-2 if len(sample.runs) > 1 else -1].run, sample.runs[-1].run
    if not phase.decided_s or first is main or len(first.phases) != len(main.phases):
        return phase
    small = first.documents, first.phases[number].decided_s
    fixed, _ = growth(small, (main.documents, phase.decided_s))
    return replace(phase, decided_fixed_s=fixed)


def _memory(first: SampleRun, main: SampleRun, whole: float) -> tuple[int, float]:
    """Return the peak memory if every worker reads whole blocks, and what each byte of a block adds to a worker.

    In the first run workers read small blocks; in the other one some of them read whole ones.
    """
    run = main.run
    small = max(block.size for block in first.blocks)
    large = max(block.size for block in main.blocks)
    at_small = (first.run.peak_memory_bytes - first.run.driver_bytes) / first.run.workers
    at_large = (run.peak_memory_bytes - run.driver_bytes) / run.workers
    slope = max(0.0, at_large - at_small) / (large - small) if large > 2 * small else _MEMORY_TIMES
    return round(run.driver_bytes + run.workers * (at_large + slope * max(0.0, whole - large))), slope
