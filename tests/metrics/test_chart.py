"""Counts over time as text."""

from __future__ import annotations

import doctest

import pytest

from gristmill.metrics import chart
from gristmill.metrics import format as fmt


def test_the_examples():
    assert doctest.testmod(chart).failed == 0


def test_only_a_count_of_zero_is_blank():
    assert chart.row([(0.0, 1), (50.0, 1000), (90.0, 0)], 100.0, 10) == "▁▁▁▁▁████ "


def test_means_keep_the_area():
    timeline = [(0.0, 3), (0.7, 5), (13.1, 0), (20.0, 8)]
    area = 0.7 * 3 + 12.4 * 5 + 10 * 8
    assert sum(chart.means(timeline, 30.0, 7)) * 30 / 7 == pytest.approx(area)


@pytest.mark.parametrize("end", [0.3, 1.0, 59.0, 61.0, 3600.0, 7e4, 1e6, 4e8])
@pytest.mark.parametrize("cells", [8, 30, 140])
def test_the_axis_fits_and_its_labels_stand_below_their_ticks(end, cells):
    line, labels = chart.axis(end, cells, fmt.ASCII)
    assert len(line) == cells >= len(labels)
    ticks = [i for i, sign in enumerate(line) if sign == "+"]
    starts = [i for i, sign in enumerate(labels) if sign.isdigit() and (not i or labels[i - 1] == " ")]
    assert ticks == starts and ticks[0] == 0


def test_a_chart_without_rows_or_time():
    assert chart.row([], 10.0, 4) == "    "
    assert chart.draw([], 10.0, 40)[-1].strip().startswith("0")
    assert chart.usual([], 10.0) == chart.most([], 10.0) == 0


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_a_chart_keeps_to_its_columns(columns):
    rows = [("段階" * 9, [(0.0, 1)]), ("x", [(0.0, 1_234_567), (5.0, 3)])]
    lines = chart.draw(rows, 600.0, columns)
    assert len(lines) == 4
    assert max(fmt.width(line) for line in lines) <= columns
    assert lines[0].endswith("1") and lines[1].endswith("1.2M")
