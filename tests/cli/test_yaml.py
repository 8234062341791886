"""``gristmill run pipeline.yaml``, ``plan``, ``init`` and ``stages``."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from gristmill.cli.main import main
from gristmill.pipeline import Pipeline
from gristmill.stages.registry import INTERNAL, known
from gristmill.stages.text.recipes import RECIPES

PIPELINE = """\
name: small
stages:
  - JsonlReader: {file_paths: input/}
  - recipe: fineweb
  - ScoreFilter: {filter_obj: StopWordsFilter, score_field: words}
    name: english
  - JsonlWriter: {path: output/}
"""
HOUSE_FILTERS = """\
from gristmill.stages.registry import register
from gristmill.stages.text.filters.document_filter import DocumentFilter


@register
class LongerFilter(DocumentFilter):
    \"\"\"Keep longer texts.\"\"\"

    def __init__(self, than: int) -> None:
        self.than = than

    def score_document(self, text: str) -> int:
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score > self.than
"""
TEXT = "The mill of the village has been turned by water.\nIt grinds the rye that the farmers have to bring.\n"


def gristmill(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gristmill.cli.main", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "input").mkdir()
    documents = [TEXT, "", "Wort um Wort ohne ein Wort aus der fremden Sprache.\n", TEXT + "More of it, and longer."]
    lines = [json.dumps({"id": i, "text": text}) for i, text in enumerate(documents)]
    (tmp_path / "input" / "a.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path) -> list[dict]:
    files = sorted((folder / "output").glob("part-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_yaml_file_runs(folder):
    done = gristmill("run", "pipeline.yaml", "--view", "off")
    assert done.returncode == 0, done.stderr
    assert "small: ran" in done.stdout and "english" in done.stdout
    assert [(doc["id"], doc["words"]) for doc in written(folder)] == [(0, 5), (3, 6)]


def test_what_is_set_on_the_command_line_wins_over_the_file(folder):
    options = ("--set", "english.filter_obj.StopWordsFilter.min_words=6", "--set", "english.score_field=common")
    done = gristmill("run", "pipeline.yaml", "--view", "off", *options)
    assert done.returncode == 0, done.stderr
    assert [(doc["id"], doc["common"]) for doc in written(folder)] == [(3, 6)]


def test_a_module_that_is_imported_is_announced_and_its_classes_reach_the_workers(folder):
    (folder / "house_filters.py").write_text(HOUSE_FILTERS)
    text = PIPELINE.replace("StopWordsFilter", f"{{LongerFilter: {{than: {len(TEXT)}}}}}")
    (folder / "pipeline.yaml").write_text("imports: [house_filters]\n" + text)
    done = gristmill("run", "pipeline.yaml", "--view", "off")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pipeline.yaml imports house_filters\n")
    assert [doc["id"] for doc in written(folder)] == [3]


def test_a_dry_run_shows_steps_input_and_output_and_runs_nothing(folder, capsys):
    assert main(["run", "pipeline.yaml", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    size = (folder / "input" / "a.jsonl").stat().st_size
    assert "step 1" in shown and "fineweb" in shown
    assert f"input: 1 block of 1 file, {size} B" in shown
    assert f"output: {folder}/output/" in shown
    assert not (folder / "output").exists()


def test_a_dry_run_shows_which_documents_would_be_read(folder, capsys):
    assert main(["run", "pipeline.yaml", "--dry-run", "--limit", "2", "--sample", "0.5"]) == 0
    assert "; reads only the first 2 documents of a sample of 0.5 of the documents\n" in capsys.readouterr().out
    assert main(["run", "pipeline.yaml", "--dry-run"]) == 0
    assert "reads only" not in capsys.readouterr().out


def test_a_dry_run_tells_what_is_wrong_with_the_input(folder, capsys):
    assert main(["run", "pipeline.yaml", "--dry-run", "--set", "JsonlReader.file_paths=inptu/"]) == 1
    assert "inptu" in capsys.readouterr().err


def test_plan_takes_yaml_too(folder, capsys):
    assert main(["plan", "pipeline.yaml"]) == 0
    assert "english" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "plan"])
def test_errors_in_a_file_are_printed_line_by_line_with_exit_2(folder, capsys, command):
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("JsonlReader", "JsonlRaeder").replace("fineweb", "finweb"))
    assert main([command, "pipeline.yaml"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "pipeline.yaml:3: stage 'JsonlRaeder' is not known. Did you mean 'JsonlReader'?\n"
        "pipeline.yaml:4: recipe 'finweb' is not known. Did you mean 'fineweb'?\n"
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", "pipelin.yaml"], "pipelin.yaml: there is no such file. Did you mean 'pipeline.yaml'?"),
        (["run", "pipeline.yaml", "--set", "x"], "--set x: write stage.key=value"),
        (["run", "pipeline.yaml", "--set", "JsonReader.fields=[a]"], "Did you mean 'JsonlReader'?"),
        (["run", "job.py", "--set", "a.b=c"], "--set is for pipelines in YAML"),
        (["run", "pipeline.yaml", "--executor", "rya"], "invalid choice: 'rya'"),
        (["run", "pipeline.yaml", "--fresh", "--resume"], "not allowed with argument"),
    ],
)
def test_wrong_usage_is_one_line(folder, capsys, args, says):
    try:
        status = main(args)
    except SystemExit as stop:
        status = stop.code
    error = capsys.readouterr().err
    assert status == 2 and says in error and error.count("\n") == 1


def test_options_are_the_files_unless_the_command_line_says_otherwise(folder, monkeypatch):
    noted = SimpleNamespace(config=None)

    def execute(self, plan, tasks, keep):
        noted.config = self.config
        raise KeyboardInterrupt

    from gristmill.backends.local import LocalExecutor

    monkeypatch.setattr(LocalExecutor, "execute", execute)
    (folder / "pipeline.yaml").write_text("executor: {local: {num_cpus: 3, view: lines}}\n" + PIPELINE)
    assert main(["run", "pipeline.yaml"]) == 130
    assert (noted.config.num_cpus, noted.config.view) == (3, "lines")
    assert main(["run", "pipeline.yaml", "--cpus", "2", "--view", "off", "--ignore-failures"]) == 130
    assert (noted.config.num_cpus, noted.config.view, noted.config.ignore_failures) == (2, "off", True)


def test_fresh_is_passed_on_and_resuming_is_the_default(folder, monkeypatch):
    given = []

    def run(self, *args, **kwargs):
        given.append(kwargs.get("fresh", False))
        raise KeyboardInterrupt

    monkeypatch.setattr(Pipeline, "run", run)
    for options in ([], ["--resume"], ["--fresh"]):
        assert main(["run", "pipeline.yaml", *options]) == 130
    assert given == [False, False, True]


class TestStages:
    def test_the_list_has_every_registered_name_and_every_recipe(self, capsys):
        assert main(["stages"]) == 0
        shown = capsys.readouterr().out
        own = [n for n, cls in known().items() if cls.__module__.startswith("gristmill.") and n not in INTERNAL]
        assert [name for name in own if f"\n  {name}(" not in shown] == []
        assert [one.name for one in RECIPES if f"\n  {one.name}@{one.version}\n" not in shown] == []
        assert "ScoreFilter(filter_obj, text_field=None, score_field=None" in shown

    def test_every_class_says_what_it_is(self):
        assert [n for n, c in known().items() if c.__module__.startswith("gristmill.") and not inspect.getdoc(c)] == []

    def test_one_of_them_with_types_and_defaults(self, capsys):
        assert main(["stages", "ShortLinesFilter"]) == 0
        shown = capsys.readouterr().out
        assert "    max_ratio: float = 0.67,\n    length: int = 30,\n" in shown
        assert "at most ``length`` characters" in shown
        assert "from gristmill.stages.text.filters.fineweb import ShortLinesFilter" in shown

    def test_a_recipe_rule_by_rule(self, capsys):
        assert main(["stages", "fineweb"]) == 0
        shown = capsys.readouterr().out
        assert "1. line_punctuation: LinePunctuationFilter(min_ratio=0.12" in shown
        assert "12 % of the lines end in" in shown
        assert "arXiv 2406.17557" in shown

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("ScoreFlter", "Did you mean 'ScoreFilter'?"),
            ("finweb", "Did you mean 'fineweb'?"),
            ("fineweb@9", "There is: fineweb@1"),
            ("zzz", "'gristmill stages' lists all names"),
        ],
    )
    def test_a_name_that_is_not_there(self, capsys, name, says):
        assert main(["stages", name]) == 2
        assert says in capsys.readouterr().err

    def test_a_prefix_lists_what_begins_with_it(self, capsys):
        assert main(["stages", "jsonl"]) == 0
        shown = capsys.readouterr().out
        assert re.findall(r"^  (\w+)\(", shown, re.MULTILINE) == ["JsonlReader", "JsonlWriter"]
        assert main(["stages", "gopher"]) == 0
        assert re.findall(r"^  ([\w-]+)@", capsys.readouterr().out, re.MULTILINE) == [
            "gopher-quality",
            "gopher-repetition",
        ]

    def test_a_prefix_of_one_name_documents_it(self, capsys):
        assert main(["stages", "ShortLinesFil"]) == 0
        assert "max_ratio: float = 0.67" in capsys.readouterr().out

    @pytest.mark.parametrize("place", ["house_filters", "house_filters.py", "pipeline.yaml"])
    def test_registered_classes_of_the_user_are_listed(self, folder, place):
        (folder / "house_filters.py").write_text(HOUSE_FILTERS)
        (folder / "pipeline.yaml").write_text("imports: [house_filters]\n" + PIPELINE)
        plain, own = gristmill("stages"), gristmill("stages", "--imports", place)
        assert "LongerFilter" not in plain.stdout
        assert "  LongerFilter(than)\n      of house_filters. Keep longer texts.\n" in own.stdout, own.stderr
        one = gristmill("stages", "Longer", "--imports", place)
        assert "    than: int,\n" in one.stdout and "from house_filters import LongerFilter" in one.stdout

    @pytest.mark.parametrize(
        ("place", "says"),
        [("no_such_module", "there is no module"), ("x.py", "there is no file"), ("x.yaml", "there is no such file")],
    )
    def test_imports_that_are_not_there(self, folder, capsys, place, says):
        assert main(["stages", "--imports", place]) == 2
        assert says in capsys.readouterr().err

    def test_output_into_a_pipe_that_closes_is_no_trace(self):
        command = f"{sys.executable} -m gristmill.cli.main stages | head -1"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=300)
        assert done.stdout == "stages\n" and "Traceback" not in done.stderr


class TestInit:
    def test_the_example_runs_right_away(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        made = gristmill("init", "demo")
        assert made.returncode == 0, made.stderr
        assert made.stdout.splitlines()[-1] == "run it: gristmill run demo/pipeline.yaml"
        documents = [
            json.loads(line) for file in (tmp_path / "demo/input").iterdir() for line in file.read_text().splitlines()
        ]
        assert 200 < len(documents) < 2000
        assert len({doc["id"] for doc in documents}) == len(documents)
        done = gristmill("run", "demo/pipeline.yaml", "--view", "off")
        assert done.returncode == 0, done.stderr
        kept = [
            json.loads(line)
            for file in (tmp_path / "demo/output").glob("part-*.jsonl")
            for line in file.read_text().splitlines()
        ]
        junk = {doc["source"] for doc in kept if doc["id"].startswith("junk")}
        assert junk == {"personal data"}
        assert len(documents) > len(kept) > len(documents) / 4
        assert not any("lovelace@example.org" in doc["text"] for doc in kept)

    def test_it_is_commented_and_round_trips(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert main(["init"]) == 0
        text = (tmp_path / "pipeline.yaml").read_text()
        assert text.count("#") > 8
        assert yaml.safe_load(text)["stages"][0] == {"JsonlReader": {"file_paths": "input/"}}
        pipeline = Pipeline.from_yaml("pipeline.yaml")
        assert Pipeline.from_yaml(pipeline.to_yaml()).to_yaml() == pipeline.to_yaml()

    @pytest.mark.parametrize("there", ["pipeline.yaml", "input/x"])
    def test_nothing_is_overwritten(self, tmp_path, monkeypatch, capsys, there):
        monkeypatch.chdir(tmp_path)
        (tmp_path / there).parent.mkdir(exist_ok=True)
        (tmp_path / there).write_text("mine")
        assert main(["init"]) == 2
        assert "exists already; nothing was written" in capsys.readouterr().err
        assert (tmp_path / there).read_text() == "mine"
        assert sum(1 for path in tmp_path.rglob("*") if path.is_file()) == 1

    def test_the_same_corpus_is_made_each_time(self, tmp_path):
        assert main(["init", str(tmp_path / "a")]) == main(["init", str(tmp_path / "b")]) == 0
        for name in ("sample-0.jsonl", "sample-1.jsonl"):
            assert (tmp_path / "a/input" / name).read_bytes() == (tmp_path / "b/input" / name).read_bytes()
