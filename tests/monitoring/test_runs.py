"""``--metrics-port`` and ``metrics_port``: from the option to the last scrape."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.monitoring import stages
from tests.monitoring.servers import wait_for

from gristmill import Pipeline, ProcessingStage
from gristmill.backends.local import LocalExecutor
from gristmill.cli.main import main
from gristmill.dedup import ExactDeduplication
from gristmill.errors import PipelineFailed, PlanError
from gristmill.metrics.discovery import PATTERN
from gristmill.pipeline.monitoring import MetricsOptions
from gristmill.tasks import Task
from gristmill.text import JsonlReader, JsonlWriter

LOCAL = {"view": "off", "num_cpus": 1}


class Sleep(ProcessingStage[Task[Any], Task[Any]]):
    name = "sleep"

    def __init__(self, seconds: float = 0.2) -> None:
        self.seconds = seconds

    def process(self, task: Task[Any]) -> Task[Any]:
        time.sleep(self.seconds)
        return task


class Fail(ProcessingStage[Task[Any], Task[Any]]):
    name = "fail"
    max_attempts = 1

    def process(self, task: Task[Any]) -> Task[Any]:
        raise ValueError("always")


def address_in(folder: Path) -> str:
    """Return the address of the run that is under way."""
    (path,) = wait_for(lambda: list(folder.glob(PATTERN)), "a run to begin")
    address: str = json.loads(path.read_text())[0]["targets"][0]
    return address


def read(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def state_in(text: str) -> str:
    (line,) = [x for x in text.splitlines() if x.startswith("gristmill_run_state") and x.endswith(" 1")]
    return line.partition('state="')[2].partition('"')[0]


class Scraper(threading.Thread):
    """Reads the metrics of the next run over and over, until that fails."""

    def __init__(self, folder: Path, pause_s: float = 0.05) -> None:
        super().__init__()
        self.folder = folder
        self.pause_s = pause_s
        self.texts: list[str] = []
        self.start()

    def run(self) -> None:
        address = address_in(self.folder)
        try:
            while True:
                self.texts.append(read(address))
                time.sleep(self.pause_s)
        except OSError:
            return


def test_a_run_is_read_to_its_end(tmp_path: Path) -> None:
    scraper = Scraper(tmp_path)
    options = MetricsOptions(0, folder=str(tmp_path), linger_s=60)
    result = Pipeline("p", stages=[Sleep()]).run(LocalExecutor(LOCAL), [Task() for _ in range(8)], metrics_port=options)
    scraper.join(60)
    assert len(result) == 8
    states = [state_in(text) for text in scraper.texts]
    assert states[0] == "running"
    assert states[-1] == "succeeded"
    assert 'gristmill_step_tasks_done_total{run="' in scraper.texts[-1]
    last = next(x for x in scraper.texts[-1].splitlines() if x.startswith("gristmill_step_tasks_done_total"))
    assert last.endswith('step="sleep"} 8')
    assert not list(tmp_path.glob(PATTERN))


def test_a_run_that_was_never_scraped_does_not_wait_for_a_scrape(tmp_path: Path) -> None:
    began = time.monotonic()
    options = MetricsOptions(0, folder=str(tmp_path), linger_s=3600)
    Pipeline("p", stages=[Sleep(0)]).run(LocalExecutor(LOCAL), [Task()], metrics_port=options)
    assert time.monotonic() - began < 3600


def test_a_scraper_that_stops_to_come_does_not_hang_the_run(tmp_path: Path) -> None:
    once = threading.Thread(target=lambda: read(address_in(tmp_path)))
    once.start()
    options = MetricsOptions(0, folder=str(tmp_path), linger_s=0.2)
    Pipeline("p", stages=[Sleep()]).run(LocalExecutor(LOCAL), [Task() for _ in range(8)], metrics_port=options)
    once.join(60)


def test_a_run_that_fails_is_read_as_failed(tmp_path: Path) -> None:
    scraper = Scraper(tmp_path)
    options = MetricsOptions(0, folder=str(tmp_path), linger_s=60)
    pipeline = Pipeline("p", stages=[Sleep(), Fail()])
    with pytest.raises(PipelineFailed):
        pipeline.run(LocalExecutor(LOCAL), [Task() for _ in range(4)], metrics_port=options)
    scraper.join(60)
    assert state_in(scraper.texts[-1]) == "failed"


def test_each_phase_of_a_deduplication_has_its_own_account(tmp_path: Path) -> None:
    """The first reads all documents and keeps their keys, the second writes those that stay."""
    stages.write_corpus(tmp_path / "in", 40, files=1)
    pipeline = Pipeline(
        "p",
        stages=[
            JsonlReader(str(tmp_path / "in")),
            Sleep(),
            ExactDeduplication(),
            JsonlWriter(str(tmp_path / "out")),
        ],
    )
    scraper = Scraper(tmp_path / "runs")
    options = MetricsOptions(0, folder=str(tmp_path / "runs"), linger_s=60)
    result = pipeline.run(LocalExecutor(LOCAL), metrics_port=options)
    scraper.join(60)
    lines = scraper.texts[-1].splitlines()
    read = {line.partition('phase="')[2][0]: line.split()[-1] for line in lines if "documents_read_total{" in line}
    assert read == {"1": "41", "2": "40"}
    assert {line.split()[-1] for line in lines if "ledger_imbalance_documents{" in line} == {"0"}
    (kept,) = [line.split()[-1] for line in lines if "documents_kept_total{" in line and 'phase="2"' in line]
    assert result.ledger is not None
    assert int(kept) == result.ledger.total().kept == 2  # a short text and a long one


def test_a_port_that_is_taken_is_an_error_before_the_run(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        pipeline = stages.pipeline_of(tmp_path / "p", documents=40)
        with pytest.raises(PlanError, match=f"metrics cannot be served at 127.0.0.1:{port}: Address already in use"):
            pipeline.run(LocalExecutor(LOCAL), metrics_port=port)
    assert not (tmp_path / "p" / "out").exists()


def test_a_folder_of_targets_that_cannot_be_written_to_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    options = MetricsOptions(0, folder=str(tmp_path / "file"))
    Pipeline("p", stages=[Sleep(0)]).run(LocalExecutor(LOCAL), [Task()], metrics_port=options)
    (words,) = [x.getMessage() for x in caplog.records if "Prometheus cannot find this run" in x.getMessage()]
    assert "GRISTMILL_METRICS_DIR" in words


def test_an_address_beyond_loopback_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = MetricsOptions(0, host="0.0.0.0", folder=str(tmp_path))
    Pipeline("p", stages=[Sleep(0)]).run(LocalExecutor(LOCAL), [Task()], metrics_port=options)
    assert any("can be read by everybody" in x.getMessage() for x in caplog.records)


def test_a_run_without_metrics_imports_nothing_of_them() -> None:
    script = """
import sys
from gristmill import Pipeline, ProcessingStage
from gristmill.backends.local import LocalExecutor
from gristmill.tasks import Task

class Same(ProcessingStage):
    name = "same"
    def process(self, task):
        return task

result = Pipeline("p", stages=[Same()]).run(LocalExecutor({"view": "off", "num_cpus": 1}), [Task()])
assert len(result) == 1
of_metrics = ("openmetrics", "metric_table", "exposition", "endpoint", "discovery", "optimum", "stack_files", "servers",
              "observer", "history")
names = {"http.server", "gristmill.backends.engine.moment", "gristmill.pipeline.metrics_endpoint",
         *(f"gristmill.metrics.{name}" for name in of_metrics)}
print(sorted(names & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


# The command


@pytest.fixture
def pipeline_file(tmp_path: Path) -> Path:
    stages.write_corpus(tmp_path / "in", 40, files=1)
    path = tmp_path / "p.yaml"
    path.write_text("name: from-yaml\nstages:\n  - JsonlReader: {file_paths: in/}\n  - JsonlWriter: {path: out/}\n")
    return path


def test_the_command_serves_metrics(pipeline_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_METRICS_DIR", str(tmp_path / "runs"))
    scraper = Scraper(tmp_path / "runs")
    assert main(["run", str(pipeline_file), "--metrics-port", "0", "--view", "off"]) == 0
    scraper.join(60)
    assert 'gristmill_run_info{run="' in scraper.texts[-1]
    assert 'pipeline="from-yaml"' in scraper.texts[-1]
    (line,) = [x for x in scraper.texts[-1].splitlines() if x.startswith("gristmill_documents_read_total")]
    assert line.endswith(" 41")


@pytest.mark.parametrize("port", ["65536", "-1", "x", "1.5", "٣"])
def test_what_is_no_port_is_wrong_usage(pipeline_file: Path, port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["run", str(pipeline_file), f"--metrics-port={port}"])
    assert raised.value.code == 2
    assert "is not a port; write a number from 0 to 65535" in capsys.readouterr().err


def test_a_host_without_a_port_is_wrong_usage(pipeline_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(pipeline_file), "--metrics-host", "0.0.0.0"]) == 2
    assert "--metrics-host needs --metrics-port" in capsys.readouterr().err


def test_a_taken_port_ends_the_command_with_one_line(pipeline_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["run", str(pipeline_file), "--metrics-port", str(port)]) == 1
    err = capsys.readouterr().err
    assert f"metrics cannot be served at 127.0.0.1:{port}: Address already in use" in err
    assert "Traceback" not in err


LONG = """
from gristmill import Pipeline
from tests.monitoring.test_runs import Sleep
from gristmill.tasks import Task

pipeline = Pipeline("long", stages=[Sleep(0.1)])
initial_tasks = [Task() for _ in range(10_000)]
"""


def start_long_run(folder: Path) -> tuple[subprocess.Popen[str], str]:
    (folder / "long.py").write_text(LONG)
    process = subprocess.Popen(
        [sys.executable, "-m", "gristmill", "run", str(folder / "long.py"), "--metrics-port", "0", "--cpus", "1"],
        env={**os.environ, "GRISTMILL_METRICS_DIR": str(folder / "runs"), "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    address = address_in(folder / "runs")
    wait_for(lambda: "gristmill_step_tasks_done_total" in read(address), "the run to begin")
    return process, address


def test_ctrl_c_ends_a_run_that_is_being_scraped_and_removes_its_target(tmp_path: Path) -> None:
    process, _ = start_long_run(tmp_path)
    scraper = Scraper(tmp_path / "runs", pause_s=0)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    scraper.join(60)
    assert process.returncode == 130, out
    assert "Traceback" not in out
    assert not list((tmp_path / "runs").glob(PATTERN))


def test_a_run_that_is_killed_leaves_a_file_that_the_next_run_removes(tmp_path: Path) -> None:
    process, _ = start_long_run(tmp_path)
    process.kill()
    process.communicate(timeout=120)
    (left,) = (tmp_path / "runs").glob(PATTERN)
    options = MetricsOptions(0, folder=str(tmp_path / "runs"))
    Pipeline("p", stages=[Sleep(0)]).run(LocalExecutor(LOCAL), [Task()], metrics_port=options)
    assert not left.exists()
