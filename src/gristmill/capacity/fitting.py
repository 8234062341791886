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
    first = sample.runs[0]
    peak, slope = _memory(first, main, sample.blocks.block_bytes)
    cpu, _ = growth((first.bytes, first.run.cpu_s), (main.bytes, run.cpu_s))
    return replace(run, phases=phases, peak_memory_bytes=peak, block_memory=slope, cpu_fixed_s=cpu)


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
    first, main = sample.runs[0].run, sample.runs[-1].run
    if not phase.decided_s or len(first.phases) != len(main.phases):
        return phase
    small = first.documents, first.phases[number].decided_s
    fixed, _ = growth(small, (main.documents, phase.decided_s))
    return replace(phase, decided_fixed_s=fixed)


def _memory(first: SampleRun, main: SampleRun, whole: float) -> tuple[int, float]:
    """Return the peak memory if every worker had read a whole block, and what each byte of a block adds.

    In the first run all workers read small blocks; in the other some of them read whole ones at the same time.
    """
    run = main.run
    small = max(block.size for block in first.blocks)
    full = min(run.workers, sum(block.size > 0.5 * whole for block in main.blocks))
    at_small = max(0.0, (first.run.peak_memory_bytes - first.run.driver_bytes) / max(1, first.run.workers))
    if whole <= small:
        return run.peak_memory_bytes, 0.0
    if not full:
        at_whole = at_small + _MEMORY_TIMES * (whole - small)
        return round(run.driver_bytes + run.workers * at_whole), _MEMORY_TIMES
    at_whole = (run.peak_memory_bytes - run.driver_bytes - (run.workers - full) * at_small) / full
    slope = max(0.0, (at_whole - at_small) / (whole - small))
    return round(run.driver_bytes + run.workers * max(at_whole, at_small)), slope
