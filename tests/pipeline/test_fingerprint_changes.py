"""A change of user code changes the fingerprint wherever the code is defined, and nothing else changes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from gristmill.ledger.differences import differences
from gristmill.pipeline.code import code_hash
from gristmill.pipeline.fingerprint import describe_stage
from gristmill.stages.core import ProcessingStage
from gristmill.stages.function_definitions import FunctionStage
from gristmill.stages.text.filters.phrases import BadWordsFilter
from gristmill.stages.text.filters.score_filter import Score, ScoreFilter
from gristmill.stages.text.filters.words import WordCountFilter

USER = '''
import functools
import re
import threading
from collections import deque
from dataclasses import dataclass, field

LIMIT = 3
WORDS = {"alpha", "beta", "gamma"}
TABLE = {"one": [1, 2.5], "two": (None, b"x")}
SHAPE = re.compile("foo")
LOCK = threading.Lock()

def helper(text):
    return deeper(text) + LIMIT

def deeper(text):
    return 10 if text in WORDS and not SHAPE.match(text) else helper and 20

class Tool:
    pattern = re.compile("tool")
    def run(self, text):
        return TABLE

@dataclass
class Options:
    deep: int = 5
    more: list = field(default_factory=lambda: [1])

class Called:
    __slots__ = ("slot", "__dict__")
    def __init__(self):
        self.slot = deque([1, 2])
        self.options = Options()
        self.me = self
    def __call__(self, task):
        return task

def times(n):
    def wrap(function):
        @functools.wraps(function)
        def repeated(task):
            for _ in range(n):
                task = function(task)
            return task
        return repeated
    return wrap

@functools.lru_cache
def cached(text):
    return text + "cached"

def plain(task, t=0):
    return helper(task), Tool, LOCK

@times(2)
def decorated(task):
    return cached(task)

def closing(shape, call):
    def inner(task):
        return shape, call, inner
    return inner

partly = functools.partial(plain, t=1)
called = Called()
method = Tool().run
among = {"red", "green", "blue"}.__contains__
closed = closing(re.compile("shape"), functools.partial(plain, t=7))
'''  # fmt: skip


def described(source: str, name: str) -> str:
    module = types.ModuleType("user_code")
    sys.modules["user_code"] = module  # dataclasses look there
    exec(source, module.__dict__)
    return json.dumps(describe_stage(FunctionStage(getattr(module, name))))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("plain", "LIMIT = 3", "LIMIT = 4"),
        ("plain", '"beta"', '"delta"'),
        ("plain", "2.5", "2.6"),
        ("plain", 're.compile("foo")', 're.compile("bar")'),
        ("plain", 're.compile("foo")', 're.compile("foo", re.I)'),
        ("plain", 're.compile("tool")', 're.compile("loot")'),
        ("plain", "return 10 if", "return 11 if"),
        ("plain", "t=0", "t=1"),
        ("partly", "t=1", "t=2"),
        ("partly", "LIMIT = 3", "LIMIT = 4"),
        ("called", "deque([1, 2])", "deque([2, 1])"),
        ("called", "deep: int = 5", "deep: int = 6"),
        ("called", "lambda: [1]", "lambda: [2]"),
        ("called", "        return task\n\ndef times", "        return None\n\ndef times"),
        ("method", "return TABLE", "return TABLE, 1"),
        ("decorated", "@times(2)", "@times(3)"),
        ("decorated", '"cached"', '"other"'),
        ("decorated", "return cached(task)", "return cached(task), 1"),
        ("among", '"green"', '"grey"'),
        ("closed", '"shape"', '"pahse"'),
        ("closed", "t=7", "t=8"),
    ],
)
def test_a_change_anywhere_in_the_code_is_seen(name, old, new):
    assert USER.count(old) == 1
    assert described(USER, name) == described(USER, name)
    assert described(USER, name) != described(USER.replace(old, new), name)


def test_globals_that_code_does_not_use_do_not_count():
    changed = USER.replace("@times(2)", "@times(3)").replace("LIMIT = 3", "# more\nLIMIT = 3\n\nUNUSED = 1")
    assert described(USER, "plain") == described(changed, "plain")


def test_running_code_does_not_change_its_description():
    def loop(task):
        return sum(len(x) for x in task.split() if x.isalpha())

    stage = FunctionStage(loop)
    before = describe_stage(stage)
    for _ in range(200):  # the interpreter rewrites code that is run often
        loop("some words")
    assert describe_stage(stage) == before


def test_a_stage_may_hold_objects_that_cannot_be_pickled_and_the_environment_is_not_stored(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "hush")

    class Holds(ProcessingStage):
        def __init__(self, *held):
            self.held = held

        def process(self, task):
            return task

    with open(tmp_path / "file", "w") as file:
        held = (threading.Lock(), file, (n for n in range(3)), os.environ, threading)
        found = [describe_stage(Holds(*held)) for _ in range(2)]
        assert found[0] == found[1] != describe_stage(Holds(*held[1:]))
        assert "hush" not in json.dumps(found)


def test_attributes_of_a_stage_and_of_its_class_count():
    def made(source: str) -> dict:
        scope: dict = {"ProcessingStage": ProcessingStage, "__name__": "somewhere"}
        exec(f"import re\n{source}", scope)
        return describe_stage(scope["Mine"]())

    head = "class Mine(ProcessingStage):\n    def process(self, task):\n        return task\n"
    both = [made(f"{head}    shape = re.compile('{one}')") for one in ("foo", "bar")]
    assert both[0] != both[1]
    nested = "{'a': [{'b': [{'c': [{'d': [%d]}]}]}]}"
    both = [made(f"{head}    def __init__(self):\n        self.deep = {nested % n}") for n in (1, 2)]
    assert both[0] != both[1]
    named = "class Tool:\n    def __init__(self, name):\n        self.name = name\n"
    both = [made(f"{named}{head}    def __init__(self):\n        self.tool = Tool('{n}')") for n in "ab"]
    assert both[0] != both[1]


def test_a_helper_in_another_file_of_the_user_counts(tmp_path):
    (tmp_path / "steps.py").write_text("import tools\ndef stage(task):\n    return tools.clean(task)\n")
    code = (
        "from gristmill.pipeline.fingerprint import describe_stage\n"
        "from gristmill.stages.function_definitions import FunctionStage\n"
        "import steps\nprint(describe_stage(FunctionStage(steps.stage)))\n"
    )
    seen = []
    for body in ("text.strip()", "text.strip()  # the same", "text.lower()"):
        (tmp_path / "tools.py").write_text(f"def clean(text):\n    return {body}\n")
        seen.append(output_of(code, "0", str(tmp_path)))
    assert seen[0] == seen[1] != seen[2]


BASES = {
    "old": "class Ours:\n    x = 1",
    "new": "class Root: pass\nclass Ours(Root):\n    x = 2\n    def more(self): pass",
}
MINE = """
class Base(Ours):
    step = 1
class Stage(Base):
    def __init__(self):
        self.kind = Ours
    def process(self, task):
        return Ours, helper()
"""


def described_with(version: str, mine: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the hash of a user's class on a base of gristmill, as it is in one of its versions."""
    ours: dict = {"__name__": f"gristmill.of_{version}"}
    exec(BASES[version] + "\ndef helper(): pass", ours)
    ours["helper"].__globals__["__name__"] = "gristmill.helpers"
    scope = {"__name__": "mine", "Ours": ours["Ours"], "helper": ours["helper"]}
    exec(mine, scope)
    monkeypatch.setattr("gristmill.__version__", version)
    return code_hash(scope["Stage"])


def test_a_new_version_of_gristmill_does_not_change_the_code_of_a_user(monkeypatch):
    before = described_with("old", MINE, monkeypatch)
    assert described_with("new", MINE, monkeypatch) == before
    assert described_with("old", MINE.replace("step = 1", "step = 2"), monkeypatch) != before
    assert described_with("old", MINE.replace("Base(Ours)", "Base"), monkeypatch) != before


def output_of(code: str, seed: str, *path: str) -> str:
    env = {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([*path, *sys.path]), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout


def test_descriptions_are_the_same_in_every_process(tmp_path):
    (tmp_path / "user_code.py").write_text(USER)
    code = (
        "import user_code\nfrom gristmill.pipeline.fingerprint import describe_stage\n"
        "from gristmill.stages.function_definitions import FunctionStage\n"
        "for name in ('plain', 'partly', 'called', 'method', 'decorated', 'closed', 'among'):\n"
        "    print(describe_stage(FunctionStage(getattr(user_code, name))))\n"
    )
    outputs = [output_of(code, seed, str(tmp_path)) for seed in ("1", "2")]
    assert outputs[0] == outputs[1] and len(set(outputs[0].splitlines())) == 7


def test_plain_pipelines_are_described_without_the_recipes(tmp_path):
    code = (
        "import sys\nfrom gristmill import processing_stage\nfrom gristmill.config.dump import dump\n"
        "from gristmill.pipeline.fingerprint import describe_stage\n"
        "from gristmill.stages.text.io.writer import JsonlWriter\n"
        f"writer = JsonlWriter({str(tmp_path)!r})\n"
        "describe_stage(processing_stage(lambda task: task)), describe_stage(writer), dump('n', None, [writer])\n"
        "print([name for name in sys.modules if 'recipes' in name])\n"
    )
    assert output_of(code, "0") == "[]\n"


def test_a_changed_list_of_words_is_seen(tmp_path: Path):
    words = tmp_path / "words.txt"
    words.write_text("bad\n")
    stage = ScoreFilter(BadWordsFilter(file=str(words)))
    before = describe_stage(stage)
    assert describe_stage(ScoreFilter(BadWordsFilter(file=str(words)))) == before
    words.write_text("worse\n")
    assert describe_stage(stage) != before


def test_a_changed_file_is_reported_by_its_name_and_not_by_its_time():
    def described(*files: list[object]) -> dict[str, object]:
        filter_ = {"class": "BadWordsFilter", "arguments": {"files": "lists"}, "files": {"files": list(files)}}
        return {"stages": [{"name": "words", "class": "ScoreFilter", "arguments": {"filter_obj": filter_}}]}

    before = described(["lists/a.txt", 4, 1], ["lists/b.txt", 4, 1])
    assert differences(before, before) == []
    (change,) = differences(before, described(["lists/a.txt", 4, 2], ["lists/b.txt", 4, 1]))
    assert change == "stage 1 'words', arguments.filter_obj: file lists/a.txt of files has changed"
    found = differences(before, described(["lists/a.txt", 5, 1], ["lists/c.txt", 4, 1]))
    assert [change.rpartition("lists/")[2] for change in found] == [
        *("a.txt of files has changed", "b.txt of files is gone", "c.txt of files is new"),
    ]
    twice = described(["lists/a.txt", 4, 1], ["lists/a.txt", 4, 1])  # in two folders
    assert len(differences(twice, described(["lists/a.txt", 4, 2], ["lists/a.txt", 4, 1]))) == 1
    assert len(differences(twice, described(["lists/a.txt", 4, 1]))) == 1


def test_a_description_survives_json():
    import orjson

    for value in (float("inf"), float("nan"), 1 << 80, "\ud800"):
        found = describe_stage(Score(WordCountFilter(max_words=value), "s"))
        assert orjson.loads(orjson.dumps(found)) == found
