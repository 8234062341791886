from __future__ import annotations

from dataclasses import replace

import pytest

from gristmill.metrics import format as fmt
from gristmill.metrics.format import ASCII, UNICODE
from gristmill.metrics.rates import RateWindow
from gristmill.metrics.table import draw
from gristmill.metrics.view_state import ViewState, foremost
from gristmill.scheduling.snapshot import Decision, GpuSnapshot, GpuWorker


def state(*moments, memory=12 * (1 << 30) // 10, limit=8 << 30, ending=""):
    window = RateWindow()
    for moment in moments:
        rates = window.add(moment)
    return ViewState(moments[-1], rates, memory, limit, ending)


def text(lines):
    return ["".join(span.text for span in line) for line in lines]


@pytest.fixture
def balance(step, moment):
    """The three stages of the demo after twenty seconds."""

    def at(t):
        return moment(
            t,
            step("fast", busy=1, tasks_done=t * 4, items_done=t * 40, service_us=250_000, busy_us=t * 10**6),
            step("slow", busy=4, queued=12, queued_bytes=31 * (1 << 20) // 10, tasks_done=t * 4 - 12, service_us=10**6),
            step("medium", dedicated=False, busy=2, starting=1, tasks_done=t * 4 - 15, tasks_failed=3),
            bottleneck=1,
            held_bytes=128 << 20,
            reserved_bytes=128 << 20,
            source_total=400,
            source_taken=t * 4,
            shared_busy=2,
            decisions=(Decision(1_200_000, "slow: 1 -> 4 workers; it limits throughput to 1.0 tasks/s"),),
        )

    return state(*(at(t) for t in range(10, 21)))


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100, 120, 160, 300])
@pytest.mark.parametrize("rows", [1, 5, 10, 24, 60])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_the_picture_fits(balance, columns, rows, glyphs):
    lines = text(draw(balance, columns, rows, glyphs))
    assert len(lines) <= rows
    assert all(fmt.width(line) <= columns for line in lines)
    if glyphs is ASCII:
        assert "".join(lines).isascii()


@pytest.mark.parametrize("columns", [80, 160])
def test_it_shows_progress_memory_and_steps(balance, columns):
    lines = text(draw(balance, columns, 40))
    page = "\n".join(lines)
    slow = next(line for line in lines if "slow" in line)
    assert slow.split() == ["▶", "slow", "4/0/0", "12", "3.1", "MB", "4.00", "0", *slow.split()[8:]]
    assert "0:20 · 68/400 tasks" in lines[0]
    assert "left" in lines[0]
    assert "256 MB of 512 MB" in page
    assert "1.2 GB of 8.0 GB" in page
    assert "2 shared" in page
    assert "0:01  slow: 1 -> 4 workers; it limits" in page
    medium = next(line for line in lines if "medium" in line)
    assert " 3" in medium


def test_only_the_bottleneck_is_marked(balance):
    marked = [line for line in text(draw(balance, 80, 40)) if "▶" in line]
    assert [line.split()[1] for line in marked] == ["slow"]


def test_wide_terminals_show_more(balance):
    assert "task takes" in "\n".join(text(draw(balance, 160, 40)))
    assert "task takes" not in "\n".join(text(draw(balance, 80, 40)))


def test_long_names_are_shortened_in_the_middle(step, moment):
    now = state(moment(1, step("read_all_the_files_of_the_crawl + keep_those_in_english")))
    line = next(line for line in text(draw(now, 80, 24)) if "read" in line)
    assert line.lstrip().startswith("read_") and "english" in line and "…" in line


def test_a_name_cannot_steer_the_terminal(step, moment):
    now = state(moment(1, step("evil\x1b[2J\nname"), decisions=(Decision(0, "because\x1b[0m\nof"),)))
    assert all(line.isprintable() for line in text(draw(now, 80, 24)))


def test_no_steps(moment):
    lines = text(draw(state(moment(0)), 80, 24))
    assert lines[0].startswith("gristmill  0:00")


def test_of_many_steps_the_important_ones_are_shown(step, moment):
    steps = [step(f"s{i}", busy=0, ended=i < 500) for i in range(1000)]
    steps[700] = step("limit", busy=4)
    steps[3] = step("failing", busy=0, tasks_failed=2)
    steps[900] = step("waiting", busy=0, queued=5)
    now = moment(1, *steps, bottleneck=700)
    page = text(draw(state(now), 80, 24))
    assert len(page) <= 24
    joined = "\n".join(page)
    assert "limit" in joined and "failing" in joined and "waiting" in joined
    assert "more steps" in joined
    assert foremost(now, 4) == [3, 700, 900]


def test_no_budget_and_no_limit(step, moment):
    now = state(moment(1, step(), budget_bytes=0, held_bytes=5 << 10), memory=7 << 20, limit=0)
    page = "\n".join(text(draw(now, 80, 24)))
    assert "5 kB" in page and "7.0 MB" in page and " of " not in page


def test_more_than_the_budget_still_fits(step, moment):
    now = state(moment(1, step(), held_bytes=2_000_000_000, budget_bytes=1000), memory=9 * 10**9, limit=10**9)
    assert all(fmt.width(line) <= 80 for line in text(draw(now, 80, 24)))


def test_draining_is_shown(step, moment):
    assert "draining" in "\n".join(text(draw(state(moment(1, step(), draining=True)), 80, 24)))


def test_the_latest_decisions_are_shown_oldest_first(step, moment):
    decisions = tuple(Decision(i * 10**6, f"decision {i}") for i in range(20))
    page = "\n".join(text(draw(state(moment(20, step(), decisions=decisions)), 80, 24)))
    assert "decision 14" not in page
    assert page.index("decision 15") < page.index("decision 19")


def test_a_fan_out_shows_an_estimate(step, moment):
    now = state(moment(10, step(tasks_done=10), step(tasks_done=100, queued=400), source_total=100))
    assert "100/≈5,000 tasks" in text(draw(now, 80, 24))[0]


def test_the_end(balance):
    lines = text(draw(replace(balance, ending="finished in 20.1 s"), 80, 24))
    assert "finished in 20.1 s" in lines[0]
    assert "left" not in lines[0]
    assert "▶" not in "\n".join(lines)


def test_it_shows_each_gpu_and_who_holds_it(balance):
    workers = (GpuWorker(7, 1, 3 << 30), GpuWorker(8, 1, 4 << 30), GpuWorker(9, -1, 1 << 30))
    gpus = (GpuSnapshot(0, 98, 9 << 30, 80 << 30, 412.4, workers), GpuSnapshot(1, 0, 0, 80 << 30, 60.0, ()))
    lines = text(draw(replace(balance, snapshot=replace(balance.snapshot, gpus=gpus)), 120, 40))
    first, second = (" ".join(line.split()) for line in lines if line.startswith("gpu "))
    assert first == "gpu 0 98 % busy, 9.0 GB of 80 GB, 412 W slow 2 x 4.0 GB, other 1 x 1.0 GB"
    assert second == "gpu 1 0 % busy, 0 B of 80 GB, 60 W"
    assert not any(line.startswith("gpu") for line in text(draw(balance, 120, 40)))
