"""The text formats: labels that harm nothing, both formats, and which one a client gets."""

from __future__ import annotations

import random
import re
import shutil
import subprocess

import pytest

from gristmill.metrics.openmetrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    INFO,
    LONGEST_VALUE,
    Metric,
    SampleLines,
    label_value,
    labels_of,
    wants_openmetrics,
)

TASKS = Metric("gristmill_tasks_total", COUNTER, ("step",), "Tasks.")
SIZE = Metric("gristmill_size_bytes", GAUGE, (), "Bytes.")
TIME = Metric("gristmill_time_seconds", HISTOGRAM, (), "Time.")
RUN = Metric("gristmill_run_info", INFO, (), "The run.")

HOSTILE = (
    'quote " and \\ backslash',
    "line\nbreak\r\ttab",
    "\x00\x1b[31m control",
    "\udc80 no UTF-8 \ud800",
    "bidi \u202e mark",
    "<script>alert(1)</script>",
    'end"} 1\nfake{a="b"} 2',
    "emoji 🙂 ü",
    "\\",
    '\\"',
    "",
)


def test_a_sample_has_its_labels_and_value() -> None:
    samples = SampleLines()
    samples.add(TASKS, labels_of({"step": "a"}), 3)
    assert samples.text([TASKS], False) == (
        '# HELP gristmill_tasks_total Tasks.\n# TYPE gristmill_tasks_total counter\ngristmill_tasks_total{step="a"} 3\n'
    )


def test_openmetrics_names_the_families_of_counters_and_information_without_their_suffix() -> None:
    samples = SampleLines()
    samples.add(TASKS, "", 3)
    samples.add(RUN, "", 1)
    lines = samples.text([TASKS, RUN], True).splitlines()
    assert "# TYPE gristmill_tasks counter" in lines
    assert "# TYPE gristmill_run info" in lines
    assert "gristmill_tasks_total{} 3" in lines
    assert "gristmill_run_info{} 1" in lines
    assert lines[-1] == "# EOF"


def test_the_older_format_knows_no_information_and_no_end() -> None:
    samples = SampleLines()
    samples.add(RUN, "", 1)
    lines = samples.text([RUN], False).splitlines()
    assert "# TYPE gristmill_run_info gauge" in lines
    assert "# EOF" not in lines


def test_a_histogram_is_cumulative_and_ends_with_all() -> None:
    samples = SampleLines()
    samples.add_histogram(TIME, 'step="50 %s"', ("0.1", "1.0"), (2, 0, 3), 9.5)
    assert [line.partition("{")[2] for line in samples.text([TIME], False).splitlines()[2:]] == [
        'step="50 %s",le="0.1"} 2',
        'step="50 %s",le="1.0"} 2',
        'step="50 %s",le="+Inf"} 5',
        'step="50 %s"} 9.5',
        'step="50 %s"} 5',
    ]


def test_families_without_samples_are_left_out() -> None:
    samples = SampleLines()
    samples.add(SIZE, "", 1)
    assert "tasks" not in samples.text([TASKS, SIZE], False)


def unescaped(value: str) -> str:
    """Read a label's value as Prometheus does."""
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), value)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_within_its_label(text: str) -> None:
    value = label_value(text)
    assert value.isprintable()
    value.encode("utf-8")
    assert re.fullmatch(r'(?:[^"\\]|\\["\\])*', value)
    if text.isprintable():
        assert unescaped(value) == text


def test_long_texts_are_cut_and_stay_different() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    start = "x" * (LONGEST_VALUE + chance.randrange(100_000))
    values = {label_value(start + str(n)) for n in range(100)}
    assert len(values) == 100
    assert {len(value) for value in values} == {LONGEST_VALUE}
    assert label_value("x" * LONGEST_VALUE) == "x" * LONGEST_VALUE


def test_promtool_accepts_hostile_labels() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    samples = SampleLines()
    for text in (*HOSTILE, "long " * 10_000):
        samples.add(TASKS, labels_of({"step": text}), 1)
    text = samples.text([TASKS], openmetrics=False)
    done = subprocess.run([promtool, "check", "metrics"], input=text.encode(), capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        ("text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;q=much", False),
        ("text/html,*/*", False),
        ("", False),
        (";;,=,;q=", False),
    ],
)
def test_the_format_follows_the_preference_of_the_client(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted
