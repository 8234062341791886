"""Jobs made of measurements, and their simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gristmill.capacity import predict as predicting
from gristmill.capacity.advice import block_size, cluster_sizes, memory_of, one_more
from gristmill.capacity.errors import CapacityError
from gristmill.capacity.gpus import RelativeSpeed, gpu_kind
from gristmill.capacity.jobs import PlannedJob, gpu_speed, loads
from gristmill.capacity.predict import fits, makespan_s, predict
from gristmill.pipeline.profiles.measured import MachineKind, PhaseMeasure, RunMeasure, StepMeasure
from gristmill.scheduling.simulator.loads import NodeModel, parse_nodes

MB = 1 << 20


def run_of(*steps: StepMeasure, inputs: int = 10, source_bytes: int = 0, **more: object) -> RunMeasure:
    phase = PhaseMeasure(steps, inputs=inputs, source_bytes=source_bytes, tick_s=0.5)
    machine = MachineKind("a CPU", 2.0)
    return RunMeasure("job", (phase,), machine, source_bytes=source_bytes, documents=1000, **more)  # type: ignore[arg-type]


def step(name: str, service_s: float, **more: object) -> StepMeasure:
    values = {"tasks": 10, "outputs": 10, "busy_s": 10 * service_s, "bytes_in": 100 * MB, "bytes_out": 10, **more}
    return StepMeasure(name, **values)  # type: ignore[arg-type]


def reading(**more: object) -> RunMeasure:
    return run_of(step("read", 1.0, **more), source_bytes=100 * MB, total_s=2.0)


def test_the_time_of_a_task_grows_with_its_block_except_the_fixed_part() -> None:
    job = PlannedJob(reading(fixed_s=0.2), 50, 1000 * MB, (NodeModel(4),))
    assert loads(job)[0].stages[0].mean_s == pytest.approx(0.2 + 0.8 * 2)


def test_a_step_with_several_outputs_makes_more_of_a_larger_block() -> None:
    run = run_of(step("read", 1.0, outputs=40), step("work", 0.5, tasks=40, busy_s=20), source_bytes=100 * MB)
    load = loads(PlannedJob(run, 50, 1000 * MB, (NodeModel(4),)))[0]
    assert load.stages[0].outputs_per_input == pytest.approx(8)
    assert load.stages[1].mean_s == pytest.approx(0.5)


def test_a_job_takes_its_work_divided_by_the_workers_and_the_start() -> None:
    found = predict(PlannedJob(reading(), 100, 1000 * MB, (NodeModel(4),)))
    assert found.seconds == pytest.approx(2.0 + 25.0, rel=0.05)
    assert found.low_s <= found.seconds <= found.high_s
    assert found.busy["CPU"] > 0.9
    assert found.bottleneck.name == "read"


def test_the_range_is_wider_if_the_measurements_vary() -> None:
    narrow = predict(PlannedJob(reading(error=0.01), 100, 1000 * MB, (NodeModel(4),)))
    wide = predict(PlannedJob(reading(error=0.2), 100, 1000 * MB, (NodeModel(4),)))
    assert wide.high_s - wide.low_s > 3 * (narrow.high_s - narrow.low_s)


def test_a_long_job_is_continued_at_the_rate_of_its_simulated_part(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(step("read", 0.5, cv=0.3), step("embed", 1.0, gpus=1.0, setup_s=20.0, cv=0.5), inputs=10)
    job = PlannedJob(run, 4000, 0, (NodeModel(8, 4),))
    whole = makespan_s(job)
    monkeypatch.setattr(predicting, "MOST_TASKS", 1500)
    assert makespan_s(job) == pytest.approx(whole, rel=0.03)
    assert makespan_s(job) != whole


def test_gpu_time_is_divided_by_the_relative_speed() -> None:
    run = run_of(step("embed", 1.0, gpus=1.0))
    slow = PlannedJob(run, 200, 0, (NodeModel(4, 2),))
    fast = replace(slow, gpu=RelativeSpeed(1.5, 2.0, 3.0))
    assert makespan_s(fast) == pytest.approx(makespan_s(slow) / 2, rel=0.05)
    found = predict(fast)
    assert found.high_s / found.low_s > 1.9  # the estimate leaves a factor of two open


def test_decisions_grow_with_the_documents_except_their_fixed_part() -> None:
    phases = tuple(replace(phase, decided_s=1.0, decided_fixed_s=0.6) for phase in reading().phases)
    run = replace(reading(), phases=phases)
    found = predict(PlannedJob(run, 100, 1000 * MB, (NodeModel(4),)))
    assert found.decided_s == (pytest.approx(0.6 + 0.4 * 10),)


def test_the_cpu_time_grows_with_the_input_except_its_fixed_part() -> None:
    run = replace(reading(), cpu_s=11.0, cpu_fixed_s=1.0)
    assert predict(PlannedJob(run, 100, 1000 * MB, (NodeModel(4),))).cpu_s == pytest.approx(101.0)


def test_one_more_node_helps_the_more_the_fewer_there_are() -> None:
    few = one_more(PlannedJob(reading(), 400, 4000 * MB, parse_nodes("1x4c")))[0]
    many = one_more(PlannedJob(reading(), 400, 4000 * MB, parse_nodes("8x4c")))[0]
    assert few.gain > 0.4
    assert 0 < many.gain < 0.2


def test_each_kind_of_node_is_tried() -> None:
    found = one_more(PlannedJob(reading(), 100, 1000 * MB, parse_nodes("2x4c,1x8c")))
    assert [one.node.cpus for one in found] == [4, 8]


def test_the_smallest_cluster_meets_the_deadline_and_one_node_less_does_not() -> None:
    job = PlannedJob(reading(), 400, 4000 * MB, parse_nodes("1x4c"))
    found = cluster_sizes(job, 20.0)[0]
    assert found.nodes > 1
    assert found.seconds <= 20.0
    less = replace(job, nodes=job.nodes * (found.nodes - 1))
    assert makespan_s(less) > 20.0


def test_a_deadline_that_no_cluster_meets_is_reported() -> None:
    job = PlannedJob(replace(reading(), total_s=30.0), 40, 400 * MB, parse_nodes("1x4c"))
    assert cluster_sizes(job, 20.0)[0].nodes == 0


def test_blocks_that_do_not_fit_the_memory_are_made_smaller() -> None:
    run = replace(
        reading(), peak_memory_bytes=5000 * MB, driver_bytes=100 * MB, workers=2, block_memory=200.0, total_s=2.0
    )
    job = PlannedJob(run, 100, 1000 * MB, (NodeModel(4, memory_gb=4.0),))
    assert memory_of(job, 4) > 4 << 30
    found = block_size(job, 4)
    assert found is not None
    assert not found.fits
    assert memory_of(job.with_blocks(found.block_bytes), 4) <= 4 << 30


def test_large_blocks_are_split_if_workers_would_have_none() -> None:
    job = PlannedJob(reading(), 2, 1000 * MB, (NodeModel(16),))
    found = block_size(job, 16)
    assert found is not None
    assert found.gain > 0.5
    assert 1000 * MB / found.block_bytes >= 16


def test_a_cluster_too_small_for_a_worker_is_refused() -> None:
    with pytest.raises(CapacityError, match=r"the nodes are too small: .*'read'"):
        fits(PlannedJob(run_of(step("read", 1.0, cpus=8.0)), 10, 0, (NodeModel(4),)))
    with pytest.raises(CapacityError, match="too small"):
        fits(PlannedJob(run_of(step("embed", 1.0, gpus=1.0)), 10, 0, (NodeModel(4),)))


def test_logical_gpus_say_nothing_about_a_kind_of_gpu() -> None:
    run = run_of(step("embed", 1.0, gpus=1.0))
    with pytest.raises(
        CapacityError, match="logical GPUs, which only count workers: how fast they are on h100 is unkn"
    ):
        gpu_speed(run, gpu_kind("h100"))
    measured = replace(run, machine=MachineKind("a CPU", 2.0, ("NVIDIA A100-SXM4-80GB",)))
    speed, words = gpu_speed(measured, gpu_kind("h100"))
    assert speed.usual > 2
    assert "estimate by data sheets" in words


def test_a_job_without_gpu_stages_needs_no_kind_of_gpu() -> None:
    assert gpu_speed(reading(), gpu_kind("h100"))[0].usual == 1.0
