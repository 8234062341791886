"""What the README says is so."""

import importlib.util
import inspect
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from gristmill.backends.local.local_config import LocalConfig
from gristmill.cli.main import main
from gristmill.scheduling.simulator import simulate
from gristmill.stages.core import ProcessingStage

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def options() -> dict[str, str]:
    """The default of each option by the README's table, as text."""
    table = README.partition("| key | default | meaning |")[2].partition("\n\n")[0]
    found = {}
    for row in table.splitlines()[2:]:
        keys, default, _ = (cell.strip() for cell in row.strip("|").split(" | "))
        found |= dict.fromkeys(re.findall(r"`(\w+)`", keys), default)
    return found


def python(*arguments: str, cwd: Path) -> str:
    run = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_readme_names_every_option_and_no_other():
    assert sorted(options()) == sorted(field.name for field in fields(LocalConfig))


@pytest.mark.parametrize("field", [f for f in fields(LocalConfig) if f.default is not None], ids=lambda f: f.name)
def test_the_readme_tells_the_true_default(field):
    value = field.default
    words = f'`"{value}"`' if isinstance(value, str) else str(value) if isinstance(value, bool) else f"{value:g}"
    assert options()[field.name] == words


@pytest.mark.parametrize("setting", [p for p in inspect.signature(ProcessingStage.with_).parameters if p != "self"])
def test_the_readme_names_every_setting_of_a_stage(setting):
    table = README.partition("## What a stage needs")[2].partition("\n## ")[0]
    assert re.search(rf"\b{setting}\b", table, re.IGNORECASE)


@pytest.mark.parametrize("room", ["engine", "local", "ray"])
def test_the_map_of_a_backend_shows_every_file(room):
    text = (ROOT / "docs/architecture.md").read_text().partition(f"n `backends/{room}/`")[2].partition("\n\n|")[2]
    files = [p.name for p in (ROOT / "src/gristmill/backends" / room).glob("*.py") if p.name != "__init__.py"]
    shown = re.findall(r"^\| `(\w+\.py)` \|", text.partition("\n\n")[0], re.MULTILINE)
    assert sorted(shown) == sorted(files)


def test_the_examples_run_as_a_script(tmp_path):
    script = [example for example in EXAMPLES if not example.startswith("#") and "JsonlReader" not in example]
    (tmp_path / "example.py").write_text("\n".join(script) + "\nassert len(result) == 100 and result.ok\n")
    assert re.search(r"^Score +100 +100 +0 +0 +200 +200 +0 ", python("example.py", cwd=tmp_path), re.MULTILINE)


def test_the_first_python_example_runs_on_the_corpus_that_init_makes(tmp_path):
    (example,) = [example for example in EXAMPLES if "JsonlReader" in example]
    assert example == EXAMPLES[0] and "gristmill init curate\n" not in example
    assert "\ngristmill init curate " in README.partition(example)[0]
    python("-m", "gristmill", "init", "curate", cwd=tmp_path)
    (tmp_path / "example.py").write_text(f"{example}\nassert result.ok and result.ledger.total().kept > 10\n")
    summary = python("example.py", cwd=tmp_path)
    for stage in ("gopher-quality", "ScoreFilter", "without_help"):
        assert re.search(rf"^  {stage} +-\d+ ", summary, re.MULTILINE), summary
    assert [json.loads(line)["files"] for line in first_part(tmp_path / "curate/output-of-mine")]


def first_part(output: Path) -> list[str]:
    return sorted(output.glob("part-*.jsonl"))[0].read_text().splitlines()


def test_the_example_for_the_command_line_runs_there(tmp_path):
    (example,) = [example for example in EXAMPLES if example.startswith("# count.py\n")]
    (tmp_path / "count.py").write_text(example)
    command = ("-m", "gristmill.cli.main")
    assert "2. large_enough" in python(*command, "plan", "count.py", cwd=tmp_path)
    summary = python(*command, "run", "count.py", "--cpus", "2", cwd=tmp_path)
    assert re.search(r"^large_enough +100 +89 +11 +0 ", summary, re.MULTILINE)


def test_the_simulation_in_the_readme_is_what_the_command_prints(capsys) -> None:
    shown = (
        (ROOT / "README.md")
        .read_text(encoding="utf-8")
        .split("$ gristmill simulate examples/loads/video.json\n")[1]
        .split("```")[0]
    )
    assert main(["simulate", str(ROOT / "examples" / "loads" / "video.json"), "--width", "80"]) == 0
    assert capsys.readouterr().out.startswith(shown.rstrip())


def test_the_hash_in_the_simulators_page_is_the_one_that_comes_out() -> None:
    shown = re.search(r"\((\d+), '([0-9a-f]{32})'\)", (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8"))
    result = simulate(f"{ROOT / 'benchmarks' / 'rig' / 'loads.json'}#video_10min", seed=3)
    assert shown and (int(shown[1]), shown[2]) == (round(result.makespan_s), result.event_hash)


def test_the_corpus_of_the_demo_is_whole(tmp_path, monkeypatch) -> None:
    spec = importlib.util.spec_from_file_location("curate", ROOT / "examples" / "curate.py")
    assert spec is not None and spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    monkeypatch.setattr(demo, "MOST_DOCUMENTS", 30)
    monkeypatch.setattr(demo, "DOCUMENTS_PER_FILE", 7)
    assert demo.make_corpus(tmp_path / "input") == 30
    lines = [line for path in sorted((tmp_path / "input").iterdir()) for line in path.read_text().splitlines()]
    assert [json.loads(line)["id"] for line in lines] == [f"doc-{n:06}" for n in range(1, 31)]
