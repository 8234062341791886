"""``gristmill simulate`` with real simulations of small loads."""

from __future__ import annotations

import copy
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gristmill.cli.main import main
from gristmill.metrics import chart
from gristmill.metrics import format as fmt
from gristmill.scheduling.simulator import simulate

EXAMPLE = Path(__file__).parents[2] / "examples" / "loads" / "video.json"
SMALL: dict[str, Any] = {
    "name": "small",
    "nodes": [{"cpus": 8, "gpus": 2}],
    "stages": [
        {"name": "read", "mean_s": 1.0, "cv": 0.5, "setup_s": 1},
        {"name": "embed", "gpus": 1, "mean_s": 2.0, "cv": 0.3, "setup_s": 10},
        {"name": "write", "cpus": 0.5, "mean_s": 0.2, "setup_s": 1},
    ],
    "inputs": 100,
}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a small load, in the folder where the test runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.json").write_text(json.dumps(SMALL))
    return tmp_path / "small.json"


def output(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["simulate", *args]) == 0
    return capsys.readouterr().out


def changed(**fields: Any) -> str:
    return json.dumps(copy.deepcopy(SMALL) | fields)


def chart_row(text: str, name: str) -> str:
    rows = text.split("workers over time")[1].splitlines()
    return next(line for line in rows if line.startswith(f"  {name} "))


class TestResult:
    def test_figures_and_stages(self, load, capsys):
        text = output(capsys, "small.json")
        result = simulate(SMALL)
        assert "small: 100 inputs, 3 stages, 1 node of 8 CPUs and 2 GPUs; seed 1" in text
        assert f"makespan          {fmt.duration(result.makespan_s)}\n" in text
        assert f"hash {result.event_hash}" in text
        assert "work lost         0 s" in text
        for stage in result.stages:
            row = next(line for line in text.splitlines() if line.startswith(f"  {stage.name} "))
            usual, most, started, tasks = row.split()[1:5]
            assert 1 <= int(usual) <= int(most)
            assert int(most) == chart.most(stage.timeline, result.makespan_s)
            assert (int(started), int(tasks)) == (stage.workers_started, 100)
            assert f"{stage.busy_share * 100:.1f} %" in row

    def test_the_seed_and_the_nodes_matter(self, load, capsys):
        first = json.loads(output(capsys, "small.json", "--json"))
        assert json.loads(output(capsys, "small.json", "--json")) == first
        other = json.loads(output(capsys, "small.json", "--json", "--seed", "2"))
        assert other["event_hash"] != first["event_hash"] and other["seed"] == 2
        larger = json.loads(output(capsys, "small.json", "--json", "--nodes", "2x8c4g"))
        assert larger["makespan_s"] < first["makespan_s"] / 2
        assert "2 nodes of 8 CPUs and 4 GPUs" in output(capsys, "small.json", "--nodes", "2x8c4g")

    def test_json_has_every_field(self, load, capsys):
        found = json.loads(output(capsys, "small.json", "--json"))
        assert list(found) == simulate(SMALL).keys()
        assert set(found["stages"][0]) >= {"name", "tasks_done", "busy_s", "workers_started", "timeline"}
        assert len(found["decisions"]) == len(simulate(SMALL).decisions)

    def test_several_loads_end_with_a_table(self, load, capsys):
        load.write_text(json.dumps([SMALL, SMALL | {"name": "twice", "inputs": 200}]))
        text = output(capsys, "small.json")
        table = text.split("all 2 loads\n")[1].splitlines()
        assert [line.split()[0] for line in table] == ["load", "small", "twice"]
        one = output(capsys, "small.json#twice")
        assert "twice: 200 inputs" in one and "small" not in one
        assert [x["load"] for x in json.loads(output(capsys, "small.json", "--json"))] == ["small", "twice"]

    def test_stages_on_shared_workers(self, load, capsys):
        load.write_text(changed(shared_cpu=True))
        text = output(capsys, "small.json")
        assert "shared" in text and chart_row(text, "embed")

    def test_the_example(self, capsys):
        text = output(capsys, str(EXAMPLE))
        assert "4 nodes of 48 CPUs and 4 GPUs" in text
        assert [chart_row(text, name) for name in ("download", "clips", "aesthetics", "caption", "write")]


class TestChart:
    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_a_row_follows_the_workers(self, load, capsys, at):
        result = simulate(SMALL)
        stage, end = result.stages[at], result.makespan_s
        row = chart_row(output(capsys, "small.json", "--width", "100"), stage.name)
        cells = row[len("  embed  ") : row.rindex("  ")]
        most = int(row.split()[-1])
        width = end / len(cells)
        checked = set()
        for i, sign in enumerate(cells):
            if any(i * width <= t <= (i + 1) * width for t, _ in stage.timeline):
                continue
            workers = [n for t, n in stage.timeline if t < i * width][-1]
            assert abs(fmt.UNICODE.levels.index(sign) / 8 - workers / most) <= 1 / 8
            checked.add(workers)
        assert most in checked and (stage.name != "read" or 0 in checked)


class TestDecisions:
    def test_they_are_shown_with_their_time_and_reason(self, load, capsys):
        text = output(capsys, "small.json", "--width", "160")
        made = simulate(SMALL).decisions
        assert 0 < len(made) <= 30
        for decision in made:
            assert decision.text in text
        assert f"{fmt.clock(made[0].at_us / 1e6):>7}  {made[0].text}" in text

    def test_of_many_the_first_and_the_last(self, capsys, monkeypatch):
        from gristmill.cli import simulate as command

        monkeypatch.setattr(command, "FIRST_DECISIONS", 2)
        monkeypatch.setattr(command, "LAST_DECISIONS", 1)
        text = output(capsys, str(EXAMPLE), "--width", "300")
        made = simulate(EXAMPLE).decisions
        shown = text.split("decisions of the balancer\n")[1].splitlines()
        assert len(made) > 4 and len(shown) == 4
        assert f"... and {len(made) - 3:,} more (--json has all)" in shown[2]
        assert made[0].text in shown[0] and made[1].text in shown[1] and made[-1].text in shown[-1]


class TestWidth:
    @pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
    def test_it_is_never_exceeded(self, tmp_path, capsys, width):
        long = {"name": "a_stage_with_a_long_name_" * 3, "mean_s": 1.0, "setup_s": 3}
        wide = {"name": "分類する段階" * 4, "mean_s": 0.5, "gpus": 0.5}
        path = tmp_path / "long.json"
        path.write_text(changed(stages=[long, *SMALL["stages"], wide], name="n" * 90))
        text = output(capsys, str(path), "--width", str(width))
        assert [line for line in text.splitlines() if fmt.width(line) > width] == []
        assert [line for line in text.splitlines() if line != line.rstrip()] == []

    def test_80_off_a_terminal(self, load, capsys):
        assert max(len(line) for line in output(capsys, "small.json").splitlines()) <= 80

    def test_ascii_where_nothing_else_can_be_shown(self, load, monkeypatch):
        load.write_text(changed(name="grün"))
        plain = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(plain, encoding="ascii"))
        assert main(["simulate", "small.json"]) == 0
        sys.stdout.flush()
        text = plain.getvalue().decode("ascii")
        assert "gr\\xfcn: 100 inputs" in text
        assert set(chart_row(text, "embed").split("embed")[1]) <= set(fmt.ASCII.levels + "0123456789")


class TestErrors:
    @pytest.mark.parametrize(
        ("content", "args", "says"),
        [
            (None, ["none.json"], "none.json cannot be read: No such file"),
            ("{", ["small.json"], "small.json is not JSON"),
            ("[]", ["small.json"], "holds no load"),
            ("[" * 100_000, ["small.json"], "nested too deeply"),
            ("3", ["small.json"], "must be an object with nodes, stages and inputs"),
            (changed(inputs=0), ["small.json"], "'inputs' is 0; it must be at least 1"),
            (changed(stages=[{"name": "a"}]), ["small.json"], "'mean_s' is missing"),
            (changed(name="two\nlines", inputs="x"), ["small.json"], "must be a number, not 'x'"),
            (changed(), ["small.json#other"], "has no load 'other'; it has: small"),
            (changed(), ["small.json", "--nodes", "many"], "'many' is not a number of nodes"),
            (changed(), ["small.json", "--nodes", "8c"], "'embed' cannot run here"),
            (changed(stages=[{"name": "a", "cpus": 9, "mean_s": 1}]), ["small.json"], "it needs 9 CPUs"),
            (changed(), ["small.json", "--profile", "none.json"], "none.json cannot be read"),
            (changed(), ["small.json", "--seed", "-1"], "'-1' is not a whole number of 0 or more"),
            (changed(), ["small.json", "--width", "10"], "'10' is not a width"),
        ],
    )
    def test_bad_input_is_one_line_and_exit_2(self, load, capsys, content, args, says):
        if content is not None:
            load.write_text(content)
        try:
            status = main(["simulate", *args])
        except SystemExit as exit:
            status = exit.code
        found = capsys.readouterr()
        assert (status, found.out) == (2, "")
        assert found.err.startswith("gristmill: ") and found.err.count("\n") == 1
        assert says in found.err

    def test_ctrl_c_is_130_without_a_trace(self, load):
        load.write_text(changed(inputs=10_000_000))
        process = start("small.json")
        assert process.stdout is not None and process.stdout.readline().startswith("small: ")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (130, "gristmill: interrupted\n")

    def test_a_reader_that_goes_away(self, load):
        process = start("small.json")
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        process.stderr.close()
        process.wait(timeout=300)


def start(*args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gristmill.cli.main", "simulate", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_help_does_not_load_the_simulator():
    code = (
        "import sys; from gristmill.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not [m for m in sys.modules if m.startswith('gristmill.scheduling')]\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_a_run_with_report_and_profile_store_does_not_load_the_simulator(tmp_path):
    (tmp_path / "input.jsonl").write_text('{"text": "three short words"}\n')
    (tmp_path / "pipeline.yaml").write_text(
        "stages:\n- JsonlReader: {file_paths: input.jsonl}\n- JsonlWriter: {path: output/}\n"
    )
    code = (
        "import sys; from gristmill.cli.main import main\n"
        "assert main(['run', 'pipeline.yaml']) == 0\n"
        "print([m for m in sys.modules if m.startswith('gristmill.scheduling.simulator')])\n"
    )
    environment = os.environ | {"GRISTMILL_PROFILE_STORE": str(tmp_path / "profiles.jsonl")}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.stdout.splitlines()[-1:] == ["[]"], run.stdout + run.stderr
    assert (tmp_path / "profiles.jsonl").read_text().count("\n") == 1
    assert (tmp_path / "output/_gristmill/report.html").exists()
