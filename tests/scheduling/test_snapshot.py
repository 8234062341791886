"""The contents of a snapshot of a run: latencies, retries, deaths, workers and plans."""

from __future__ import annotations

import random

import pytest
from script import Script

from gristmill.scheduling import StepSpec
from gristmill.scheduling import commands as c
from gristmill.scheduling import events as e
from gristmill.scheduling.latency import LatencyHistogram
from gristmill.scheduling.simulator.model import SECOND, cpus
from gristmill.scheduling.snapshot import LATENCY_BOUNDS_US


def test_latencies_are_counted_in_the_bucket_with_the_next_larger_bound() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    times = [*LATENCY_BOUNDS_US, 0, *(round(2 ** chance.uniform(0, 36)) for _ in range(500))]
    histogram = LatencyHistogram()
    for us in times:
        histogram.add(us)
    lower = (-1, *LATENCY_BOUNDS_US)
    upper = (*LATENCY_BOUNDS_US, 1 << 60)
    assert histogram.counts == [sum(a < us <= b for us in times) for a, b in zip(lower, upper, strict=True)]
    assert histogram.total_us == sum(times)


def test_a_unit_counts_once_in_the_latencies_with_all_its_chunks() -> None:
    s = Script(StepSpec("a"), StepSpec("b"))
    s.give(1)
    s.start()
    worker, unit = s.unit(0)
    s.tell(e.UnitEmitted(worker, unit, s.outputs(1, parent=unit), 3000))
    s.finish(1, n=0)
    s.finish(0, n=0, busy_us=2000)
    first, second = s.scheduler.snapshot().steps
    assert (first.units_done, sum(first.latency), first.latency_us) == (1, 1, 5000)
    assert first.latency[LATENCY_BOUNDS_US.index(8000)] == 1
    assert (second.units_done, second.latency_us) == (1, 1000)


def test_units_that_run_at_once_count_with_their_whole_time() -> None:
    s = Script(StepSpec("a", dedicated=True, in_flight=4))
    s.give(2)
    s.start()
    s.finish(busy_us=8000)
    s.finish(busy_us=8000)
    assert s.scheduler.snapshot().steps[0].latency_us == 16000


def test_a_task_that_fails_three_times_was_retried_twice() -> None:
    s = Script(StepSpec("a"), ignore_failures=True)
    s.give(1)
    s.start()
    for _ in range(3):
        s.fail()
    step = s.scheduler.snapshot().steps[0]
    assert (step.retries, step.tasks_failed) == (2, 1)


def test_each_task_of_a_batch_that_is_halved_and_each_half_of_a_task_is_a_retry() -> None:
    s = Script(StepSpec("a", batch_size=2), ignore_failures=True)
    s.give(2)
    s.start()
    s.fail()
    assert s.scheduler.snapshot().steps[0].retries == 2

    s = Script(StepSpec("a", max_attempts=1, slices=True), ignore_failures=True)
    s.give(1, items=4)
    s.start()
    s.fail()
    assert s.scheduler.snapshot().steps[0].retries == 2


def test_the_death_of_a_shared_worker_counts_for_the_step_that_it_ran() -> None:
    s = Script(StepSpec("a"), StepSpec("b"), nodes=(cpus(2),))
    s.give(1)
    s.start()
    s.finish(0, n=1)
    worker, unit = s.unit(1)
    s.tell(e.WorkerDied(worker, e.Death.CRASHED, unit))
    s.start()
    moment = s.scheduler.snapshot()
    assert [step.deaths for step in moment.steps] == [0, 1]
    assert [step.retries for step in moment.steps] == [0, 1]
    assert moment.shared_deaths == 0
    assert moment.shared_started == len(s.all(c.StartWorker))


def test_the_death_of_an_idle_shared_worker_counts_for_no_step() -> None:
    s = Script(StepSpec("a"))
    s.give(1)
    (worker,) = s.start()
    s.finish(n=0)
    s.tell(e.WorkerDied(worker, e.Death.KILLED))
    moment = s.scheduler.snapshot()
    assert (moment.shared_deaths, moment.steps[0].deaths) == (1, 0)


def test_the_waiting_time_of_tasks_is_that_until_they_were_dispatched() -> None:
    s = Script(StepSpec("a", workers=1))
    s.give(1)
    s.now += 500
    s.start()
    assert s.scheduler.snapshot().steps[0].queue_us == 501


def test_setups_count_with_their_time() -> None:
    s = Script(StepSpec("a", workers=2), nodes=(cpus(2),))
    started = [x.worker for x in s.all(c.StartWorker)]
    s.tell(*(e.WorkerReady(worker, 700) for worker in started))
    step = s.scheduler.snapshot().steps[0]
    assert (step.started, step.setups, step.setup_us) == (2, 2, 1400)


def test_bytes_that_go_to_the_next_step_are_counted() -> None:
    s = Script(StepSpec("a"), StepSpec("b"))
    s.give(1, size=5000)
    s.start()
    s.finish(0, n=2, size=300)
    moment = s.scheduler.snapshot()
    assert (moment.source_bytes, moment.steps[0].bytes_out, moment.steps[1].bytes_out) == (5000, 600, 0)


# The plan of the balancer


def test_only_steps_with_workers_of_their_own_have_a_planned_number() -> None:
    s = Script(StepSpec("a"), StepSpec("b", workers=2), nodes=(cpus(3),))
    s.give(1)
    planned = [step.planned for step in s.scheduler.snapshot().steps]
    assert planned == [None, 2]
    assert len([x for x in s.all(c.StartWorker) if x.step == 1]) == 2


def test_the_optimum_is_set_by_the_slowest_step() -> None:
    """Two workers at 10 ms per task make one task in 5 ms; the step before it, which is fast, gets as many out."""
    s = Script(StepSpec("fast", workers=1), StepSpec("slow", workers=2), nodes=(cpus(3),))
    s.give(8)
    s.start()
    for _ in range(4):
        s.finish(0, n=1, busy_us=1000)
    for _ in range(4):
        s.finish(1, n=1, busy_us=10_000)
    fast, slow = s.scheduler.snapshot().steps
    assert slow.optimum_ns == 5_000_000
    assert fast.optimum_ns == 5_000_000


@pytest.mark.parametrize("outputs", [2, 4])
def test_the_optimum_counts_outputs_per_task(outputs: int) -> None:
    s = Script(StepSpec("reader", workers=1), StepSpec("slow", workers=2), nodes=(cpus(3),))
    s.give(4)
    s.start()
    for _ in range(2):
        s.finish(0, n=outputs, busy_us=1000)
    for _ in range(4):
        s.finish(1, n=1, busy_us=10_000)
    reader, slow = s.scheduler.snapshot().steps
    assert slow.optimum_ns == 5_000_000
    assert reader.optimum_ns == 5_000_000 * outputs


def test_steps_on_shared_workers_divide_the_cpus() -> None:
    """6 ms of one CPU and 2 ms of two on four CPUs: a task in (6 + 4) / 4 ms."""
    s = Script(StepSpec("a"), StepSpec("b", cpu=2 * SECOND), nodes=(cpus(4),))
    s.give(4)
    for _ in range(4):
        s.start()
        s.finish(0, n=1, busy_us=6000)
    for _ in range(4):
        s.start()
        s.finish(1, n=1, busy_us=2000)
    moment = s.scheduler.snapshot()
    assert [step.optimum_ns for step in moment.steps] == [2_500_000, 2_500_000]


def test_without_a_measured_step_there_is_no_optimum() -> None:
    s = Script(StepSpec("a"))
    s.give(1)
    s.start()
    assert s.scheduler.snapshot().steps[0].optimum_ns == 0
