from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.metrics.rates import RateWindow, progress_of
from gristmill.scheduling.snapshot import Snapshot, StepSnapshot


def feed(window, moments):
    rates = None
    for moment in moments:
        rates = window.add(moment)
    return rates


def test_a_single_moment_has_no_rate(step, moment):
    rates = RateWindow().add(moment(0, step(tasks_done=5)))
    assert (rates.steps[0].tasks_per_s, rates.steps[0].busy_share, rates.eta_s) == (0.0, None, None)


def test_rates_are_those_of_the_last_ten_seconds(step, moment):
    # 1 task/s for a minute, then 5 tasks/s.
    done = [min(t, 60) + 5 * max(0, t - 60) for t in range(81)]
    window = RateWindow()
    early = feed(window, [moment(t, step(tasks_done=done[t], items_done=done[t] * 10)) for t in range(61)])
    late = feed(window, [moment(t, step(tasks_done=done[t], items_done=done[t] * 10)) for t in range(61, 81)])
    assert early.steps[0].tasks_per_s == pytest.approx(1.0)
    assert late.steps[0].tasks_per_s == pytest.approx(5.0)
    assert late.steps[0].items_per_s == pytest.approx(50.0)


def test_the_end_shows_the_means_of_the_whole_run(step, moment):
    window = RateWindow()
    feed(window, [moment(t, step(tasks_done=min(t, 60), busy=1, busy_us=min(t, 60) * 10**6)) for t in range(121)])
    (overall,) = window.overall().steps
    assert overall.tasks_per_s == pytest.approx(0.5)
    assert overall.busy_share == pytest.approx(0.5)


def test_tasks_longer_than_the_window_have_a_rate_from_their_service_time(step, moment):
    slow = step(busy=4, service_us=60_000_000, tasks_done=2, items_done=20)
    rates = feed(RateWindow(), [moment(t, slow) for t in range(30)])
    assert rates.steps[0].tasks_per_s == pytest.approx(4 / 60)
    assert rates.steps[0].items_per_s == pytest.approx(40 / 60)


def test_busy_share_of_short_tasks_is_the_work_done(step, moment):
    moments = [moment(t, step(busy=2, idle=2, busy_us=t * 3_000_000, service_us=5000)) for t in range(20)]
    assert feed(RateWindow(), moments).steps[0].busy_share == pytest.approx(0.75)


def test_busy_share_of_long_tasks_is_how_the_workers_are_seen(step, moment):
    moments = [moment(t, step(busy=3, idle=1, busy_us=0, service_us=30_000_000)) for t in range(20)]
    assert feed(RateWindow(), moments).steps[0].busy_share == pytest.approx(0.75)


def test_busy_share_of_a_shared_step_is_of_all_shared_workers(step, moment):
    moments = [
        moment(t, step(dedicated=False, busy=1, busy_us=t * 10**6, service_us=1000), shared_busy=3, shared_idle=1)
        for t in range(20)
    ]
    assert feed(RateWindow(), moments).steps[0].busy_share == pytest.approx(0.25)


def test_time_that_stands_still_gives_no_rate(step, moment):
    window = RateWindow()
    rates = feed(window, [moment(3, step(tasks_done=n, busy_us=n)) for n in range(5)])
    assert rates.steps[0].tasks_per_s == 0.0
    assert window.overall().steps[0].tasks_per_s == 0.0


def test_no_steps(moment):
    window = RateWindow()
    assert window.overall().steps == ()
    assert feed(window, [moment(t) for t in range(3)]).steps == ()


def test_a_window_does_not_grow_with_the_number_of_moments(step, moment):
    window = RateWindow()
    rates = feed(window, [moment(t / 1000, step(tasks_done=t)) for t in range(30_000)])
    assert rates.steps[0].tasks_per_s == pytest.approx(1000, rel=0.01)
    assert len(window._past) < 250


class TestProgress:
    def test_one_out_of_each(self, step, moment):
        now = moment(10, step(tasks_done=40, running=1), step(tasks_done=30, queued=9, running=1), source_total=100)
        progress = progress_of(now)
        assert (progress.done, progress.total, progress.exact, progress.fraction) == (30, 100, True, 0.3)

    def test_failed_tasks_are_through(self, step, moment):
        progress = progress_of(moment(10, step(tasks_done=90, tasks_failed=10), source_total=100))
        assert (progress.done, progress.fraction) == (100, 1.0)

    def test_fan_out_is_extrapolated(self, step, moment):
        # 10 of 100 sources have made 50 tasks each; 125 of the 5,000 to expect are done.
        now = moment(10, step(tasks_done=10), step(tasks_done=125, queued=375), source_total=100)
        progress = progress_of(now)
        assert (progress.done, progress.total, progress.exact) == (125, 5000, False)
        assert progress.fraction == pytest.approx(0.025)

    def test_a_source_that_has_ended_is_not_extrapolated(self, step, moment):
        now = moment(10, step(tasks_done=1, ended=True), step(tasks_done=125, queued=375), source_total=1)
        progress = progress_of(now)
        assert (progress.total, progress.exact, progress.fraction) == (500, True, 0.25)

    def test_a_generator_in_its_first_task_says_nothing(self, step, moment):
        now = moment(10, step(running=1), step(tasks_done=125, queued=375), source_total=1)
        assert (progress_of(now).total, progress_of(now).fraction) == (None, None)

    def test_unknown_source(self, step, moment):
        assert progress_of(moment(1, step(tasks_done=3))).fraction is None

    def test_empty_source(self, step, moment):
        progress = progress_of(moment(1, step(ended=True), step(ended=True), source_total=0))
        assert (progress.total, progress.fraction) == (0, 1.0)

    def test_everything_dropped(self, step, moment):
        progress = progress_of(moment(1, step(tasks_done=50), step(), source_total=100))
        assert progress.fraction == 0.5

    @given(st.data())
    def test_a_fraction_is_a_fraction(self, data):
        n = st.integers(0, 1000)
        steps = tuple(
            StepSnapshot("s", True, 0, 0, 0, data.draw(n), 0, data.draw(n), data.draw(n), 0, data.draw(n), 0, 0, False)
            for _ in range(data.draw(st.integers(0, 4)))
        )
        total = data.draw(st.none() | n)
        progress = progress_of(Snapshot(0, steps, None, 0, 0, 0, 0, total, False, 0, 0, 0, ()))
        assert progress.fraction is None or 0.0 <= progress.fraction <= 1.0
        assert progress.total is None or progress.total >= progress.done


class TestTimeLeft:
    def test_steady(self, step, moment):
        moments = [moment(t, step(tasks_done=4 * t), source_total=400) for t in range(51)]
        assert feed(RateWindow(), moments).eta_s == pytest.approx(50, rel=0.02)

    def test_follows_a_change_of_pace(self, step, moment):
        done = [t if t < 50 else 50 + 4 * (t - 50) for t in range(121)]
        moments = [moment(t, step(tasks_done=d), source_total=1000) for t, d in enumerate(done)]
        assert feed(RateWindow(), moments).eta_s == pytest.approx((1000 - done[-1]) / 4, rel=0.02)

    def test_tasks_longer_than_the_window(self, step, moment):
        moments = [moment(t, step(tasks_done=t // 100), source_total=10) for t in range(351)]
        assert feed(RateWindow(), moments).eta_s == pytest.approx(7 / 3 * 350)

    def test_none_without_a_total_or_before_anything_is_through(self, step, moment):
        assert feed(RateWindow(), [moment(t, step(tasks_done=t)) for t in range(20)]).eta_s is None
        moments = [moment(t, step(tasks_done=t), step(queued=t), source_total=100) for t in range(20)]
        assert feed(RateWindow(), moments).eta_s is None

    def test_none_while_draining(self, step, moment):
        moments = [moment(t, step(tasks_done=t), source_total=100, draining=t > 10) for t in range(20)]
        assert feed(RateWindow(), moments).eta_s is None

    def test_a_fan_out_that_turns_out_larger_starts_afresh(self, step, moment):
        """Progress falls from 50 % to 10 % and then continues at 2 % per second."""
        fractions = [50 if t < 10 else 10 + 2 * (t - 10) for t in range(31)]
        moments = [moment(t, step(tasks_done=f), source_total=100) for t, f in enumerate(fractions)]
        assert feed(RateWindow(), moments).eta_s == pytest.approx(25, rel=0.1)

    def test_nothing_left(self, step, moment):
        moments = [moment(t, step(tasks_done=t), source_total=20) for t in range(21)]
        assert feed(RateWindow(), moments).eta_s == 0.0


def test_a_moment_of_many_steps_is_cheap(step, moment):
    window = RateWindow()
    steps = [step(f"s{i}") for i in range(1000)]
    began = time.process_time()
    feed(window, [moment(t / 4, *steps, source_total=100) for t in range(100)])
    assert (time.process_time() - began) / 100 < 0.02
