"""The files and servers of ``gristmill metrics``: configuration, alert rules, the dashboard, and servers."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.monitoring.servers import MetricsUp, free_port, wait_for

from gristmill.cli.main import main
from gristmill.metrics import metric_table as m
from gristmill.metrics.stack_files import StackFiles, shipped

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ALERTS = {
    "GristmillGpuMemoryHigh",
    "GristmillMemoryHigh",
    "GristmillErrorRate",
    "GristmillDocumentErrors",
    "GristmillStageStalled",
    "GristmillLedgerMismatch",
    "GristmillWorkersRestart",
    "GristmillRunFailed",
}


def written(folder: Path, *options: str) -> StackFiles:
    assert main(["metrics", "write", str(folder), "--runs", str(folder / "runs"), *options]) == 0
    return StackFiles(folder, folder / "runs")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(shipped("rules.yml"))["groups"] for rule in group["rules"]]


# Rules


def test_promtool_accepts_the_configuration_with_its_rules(tmp_path: Path, promtool: str) -> None:
    stack = written(tmp_path / "a folder: 'quoted'")
    done = subprocess.run([promtool, "check", "config", str(stack.prometheus)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_promtool_fires_each_alert_where_it_should(tmp_path: Path, promtool: str) -> None:
    stack = written(tmp_path)
    tests = tmp_path / "tests.yml"
    tests.write_text((HERE / "rules_test.yml").read_text().replace("RULES", json.dumps(str(stack.rules))))
    done = subprocess.run([promtool, "test", "rules", str(tests)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_tested_and_says_what_to_do() -> None:
    assert {rule["alert"] for rule in rules()} == ALERTS
    tests = (HERE / "rules_test.yml").read_text()
    for rule in rules():
        assert rule["alert"] in tests
        assert {"summary", "description"} == set(rule["annotations"])
        assert rule["labels"]["severity"] in ("warning", "critical")


def names_in(expr: str) -> set[str]:
    return {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\bgristmill_\w+", expr)}


def test_rules_and_the_dashboard_ask_only_for_metrics_that_exist() -> None:
    known = {metric.name for metric in m.METRICS}
    for rule in rules():
        assert names_in(rule["expr"]) <= known
        assert names_in(rule["annotations"]["description"]) <= known
    asked = names_in(shipped("dashboard.json"))
    assert asked <= known
    seldom = {m.RUN_START, m.RUN_WARNINGS, m.ELAPSED, m.SOURCE_BYTES, m.OPTIMUM, m.ENDED, m.GPU_WATTS}
    assert len(known - asked - {x.name for x in seldom}) < 30


def test_the_dashboard_is_what_its_script_makes() -> None:
    pytest.importorskip("grafana_foundation_sdk", reason="pip install grafana-foundation-sdk")
    spec = importlib.util.spec_from_file_location("make_dashboard", ROOT / "scripts" / "make_dashboard.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script  # its dataclasses look their module up
    spec.loader.exec_module(script)
    assert shipped("dashboard.json") == script.text()


def test_no_panel_names_a_stage_or_a_run() -> None:
    for panel in json.loads(shipped("dashboard.json"))["panels"]:
        for target in panel.get("targets", ()):
            assert 'run=~"$run"' in target["expr"]
            literals = set(re.findall(r'(?:step|stage|pipeline)="([^"]*)"', target["expr"]))
            assert not literals


# Files


def test_the_files_are_written_and_nothing_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack = written(tmp_path, "--port", "9191", "--grafana-port", "3131")
    config = yaml.safe_load(stack.prometheus.read_text())
    (job,) = config["scrape_configs"]
    assert job["file_sd_configs"][0]["files"] == [str(tmp_path / "runs" / "run-*.json")]
    source = yaml.safe_load((stack.provisioning / "datasources" / "gristmill.yml").read_text())
    assert source["datasources"][0]["url"] == "http://127.0.0.1:9191"
    provider = yaml.safe_load((stack.provisioning / "dashboards" / "gristmill.yml").read_text())
    assert provider["providers"][0]["options"]["path"] == str(stack.dashboard.parent)
    assert json.loads(stack.dashboard.read_text())["uid"] == "gristmill"
    assert "http_addr = 127.0.0.1\nhttp_port = 3131\n" in stack.grafana.read_text()
    shown = capsys.readouterr().out.splitlines()
    assert shown == [f"wrote {path}" for path in (*map(Path, [line.removeprefix("wrote ") for line in shown]),)]
    assert all(Path(line.removeprefix("wrote ")).is_file() for line in shown)
    assert not (tmp_path / "data").exists()


def test_up_without_start_writes_the_same(tmp_path: Path) -> None:
    assert main(["metrics", "up", "--no-start", "--dir", str(tmp_path), "--runs", str(tmp_path / "runs")]) == 0
    assert (tmp_path / "prometheus.yml").is_file()
    assert not (tmp_path / "logs").exists()


def test_addresses_of_killed_runs_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "runs").mkdir()
    labels = {
        "__gristmill_host__": socket.gethostname(),
        "__gristmill_pid__": str(ended.pid),
        "__gristmill_start__": "",
    }
    (tmp_path / "runs" / "run-x.json").write_text(json.dumps([{"targets": ["127.0.0.1:1"], "labels": labels}]))
    written(tmp_path)
    assert not list((tmp_path / "runs").iterdir())


def failing(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["metrics", *arguments]) == 1
    return capsys.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    err = failing(capsys, "write", str(tmp_path / "file" / "x"), "--runs", str(tmp_path / "runs"))
    assert re.fullmatch(
        r"gristmill: .*file.* cannot be written to: Not a directory. Choose another folder for .*\n", err
    )


def test_a_folder_of_runs_that_would_be_a_pattern_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    err = failing(capsys, "write", str(tmp_path), "--runs", str(tmp_path / "runs [1]"))
    assert "Prometheus finds runs by a pattern" in err
    assert "--runs" in err
    assert not (tmp_path / "prometheus.yml").exists()


# Servers


def gristmill(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gristmill", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=300)


def test_what_is_not_installed_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = gristmill("metrics", "up", "--dir", str(tmp_path / "s"), PATH=str(tmp_path / "bin"), HOME=str(tmp_path))
    assert done.returncode == 1
    assert "Prometheus is not installed: install the package 'prometheus'" in done.stdout
    assert "Grafana is not installed" in done.stdout
    assert str(tmp_path / "s" / "grafana" / "dashboards" / "gristmill.json") in done.stdout
    assert done.stderr == "gristmill: neither Prometheus nor Grafana is installed: nothing was started\n"


def fake(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!{sys.executable}\n{script}")
    (folder / name).chmod(0o755)


def test_a_server_that_ends_at_once_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    """A stand-in for the program, as the real one accepts our configuration."""
    fake(tmp_path / "bin", "prometheus", "import sys; print('first'); sys.exit('opening storage failed')\n")
    options = ("--dir", str(tmp_path / "s"), "--port", str(free_port()), "--runs", str(tmp_path / "runs"))
    done = gristmill("metrics", "up", *options, PATH=str(tmp_path / "bin"))
    assert done.returncode == 1
    assert "gristmill: Prometheus ended with status 1" in done.stderr
    assert "opening storage failed" in done.stderr
    assert "Traceback" not in done.stderr


GRAFANA = """
import http.server, json, sys
arguments = sys.argv[1:]
config = next(x.removeprefix("--config=") for x in arguments if x.startswith("--config="))
port = next(int(line.split(" = ")[1]) for line in open(config) if line.startswith("http_port"))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/api/health" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def test_grafana_is_started_with_its_configuration_and_stopped(tmp_path: Path) -> None:
    """A stand-in that reads the configuration as Grafana does: the server itself was not available."""
    fake(tmp_path / "bin", "grafana-server", GRAFANA)
    port = free_port()
    options = ["--dir", str(tmp_path / "s"), "--grafana-port", str(port), "--runs", str(tmp_path / "runs")]
    up = subprocess.Popen(
        [sys.executable, "-m", "gristmill", "metrics", "up", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": str(tmp_path / "bin")},
    )
    assert up.stdout is not None
    try:
        lines = [next(iter(up.stdout.readline, "")) for _ in range(9)]
        assert f"Grafana is at http://127.0.0.1:{port}\n" in lines
        assert any("Prometheus is not installed" in line for line in lines)
        up.terminate()
        assert up.wait(60) == 0
        assert not answers(port)
    finally:
        up.kill()
        up.wait()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def test_ctrl_c_stops_the_server(start_metrics_up: Callable[..., MetricsUp]) -> None:
    up = start_metrics_up()
    assert answers(up.port)
    assert up.stop() == "stopping\n"
    assert up.process.returncode == 0
    assert not answers(up.port)


def test_a_port_that_is_taken_is_an_error(start_metrics_up: Callable[..., MetricsUp], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = gristmill("metrics", "up", "--dir", str(tmp_path), "--port", str(port), "--runs", str(tmp_path / "runs"))
    assert done.returncode == 1
    assert done.stderr == (
        f"gristmill: Prometheus cannot listen at 127.0.0.1:{port}: Address already in use. Stop what uses the port, or "
        "choose another one with --port.\n"
    )


def test_prometheus_loads_the_rules(metrics_up: MetricsUp) -> None:
    groups = wait_for(lambda: metrics_up.get("rules")["groups"], "the rules")
    assert {rule["name"] for group in groups for rule in group["rules"]} == ALERTS
    wait_for(
        lambda: all(rule["health"] == "ok" for group in metrics_up.get("rules")["groups"] for rule in group["rules"]),
        "all rules to be evaluated",
    )
