"""The table of metrics in the documentation."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import yaml

from gristmill.metrics.metric_table import METRICS
from gristmill.metrics.stack_files import shipped

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "prometheus.md"


def test_the_table_is_that_of_the_code() -> None:
    path = ROOT / "scripts" / "make_metric_table.py"
    spec = importlib.util.spec_from_file_location("make_metric_table", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = PAGE.read_text(encoding="utf-8")
    assert page == script.with_table(page)
    assert all(f"| `{metric.name}` |" in page for metric in METRICS)


def test_the_page_names_each_alert_and_only_metrics_that_exist() -> None:
    page = PAGE.read_text(encoding="utf-8")
    alerts = [rule["alert"] for group in yaml.safe_load(shipped("rules.yml"))["groups"] for rule in group["rules"]]
    assert re.findall(r"^\| `(Gristmill\w+)` \|", page, re.MULTILINE) == alerts
    names = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"gristmill_\w+", page)}
    assert names == {metric.name for metric in METRICS}
