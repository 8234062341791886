"""A stage is described in plain values, so that a later run finds out whether the pipeline has changed."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from gristmill import Resources, processing_stage
from gristmill.pipeline.fingerprint import code_hash, describe_stage
from gristmill.stages.core import ProcessingStage
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.deduplication.remove import RemoveDuplicates
from gristmill.stages.text.filters.fineweb import ShortLinesFilter
from gristmill.stages.text.filters.score_filter import Score, ScoreFilter
from gristmill.stages.text.recipes import recipe
from gristmill.storage import Folder


def test_a_registered_stage_is_its_name_and_arguments_with_defaults():
    described = describe_stage(ScoreFilter(ShortLinesFilter(length=7), text_field="body"))
    assert described == {
        "name": "ScoreFilter",
        "class": "ScoreFilter",
        "arguments": {
            "filter_obj": {
                "class": "ShortLinesFilter",
                "arguments": {"max_ratio": 0.67, "length": 7, "blank_lines": False, "exclusive": False},
            },
            "text_field": "body",
            "score_field": None,
            "invert": False,
            "keep_scores": False,
        },
    }
    json.dumps(described)


def test_a_default_that_is_written_out_is_no_change():
    assert describe_stage(ScoreFilter(ShortLinesFilter())) == describe_stage(ScoreFilter(ShortLinesFilter(0.67, 30)))


def test_settings_that_cannot_change_results_do_not_count_and_names_do():
    stage = ScoreFilter(ShortLinesFilter())
    assert describe_stage(stage) == describe_stage(stage.with_(batch_size=4, resources=Resources(cpus=2)))
    assert describe_stage(stage) != describe_stage(stage.with_(name="other"))


def test_another_revision_of_a_stage_is_another_stage(monkeypatch):
    before = describe_stage(FuzzyDeduplication())
    monkeypatch.setattr(FuzzyDeduplication, "revision", FuzzyDeduplication.revision + 1)
    assert describe_stage(FuzzyDeduplication()) != before
    assert before["revision"] >= 2


def test_a_recipe_is_its_rules():
    plain, changed = describe_stage(recipe("fineweb")), describe_stage(recipe("fineweb", set={"newlines": False}))
    assert len(plain["rules"]) == 4 and len(changed["rules"]) == 3
    json.dumps(plain)


def made(body: str) -> ProcessingStage:
    scope: dict = {"ProcessingStage": ProcessingStage, "__name__": "somewhere"}
    exec("class Mine(ProcessingStage):\n" + textwrap.indent(textwrap.dedent(body), "    "), scope)
    return scope["Mine"]()


SAME = """
    def __init__(self):
        self.words = {"a", "b"}
    def process(self, task):
        return task if task.data in {"x", "y"} else None
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("self.words", "self.words", True),
        ("def process", "# a comment\n    def process", True),
        ("return task if", "\n\n        return task if", True),
        ('"y"', '"z"', False),
        ('"b"', '"c"', False),
        ("else None", "else task.other", False),
    ],
)
def test_the_code_of_any_other_class_counts_but_not_its_looks(old, new, same):
    before, after = describe_stage(made(SAME)), describe_stage(made(SAME.replace(old, new)))
    assert (before == after) is same
    json.dumps(before)


def test_docstrings_do_not_count_and_values_of_closures_do():
    def with_doc(limit):
        def score(text):
            """Says something."""
            return len(text) > limit

        return score

    def without(limit):
        def score(text):
            """Says something else."""
            return len(text) > limit

        return score

    assert code_hash(with_doc(3)) == code_hash(without(3))
    assert code_hash(with_doc(3)) != code_hash(with_doc(4))
    one, other = (describe_stage(Score(with_doc(n), "s")) for n in (3, 4))
    assert one != other


def test_different_functions_as_stages_have_different_code():
    @processing_stage(name="s")
    def one(task):
        return task

    @processing_stage(name="s")
    def two(task):
        return None

    assert describe_stage(one)["code"] != describe_stage(two)["code"]


def test_it_is_the_same_in_another_process_with_other_hashes():
    code = (
        "import json\n"
        "from gristmill.pipeline.fingerprint import describe_stage\n"
        "from gristmill.stages.core import ProcessingStage\n"
        "class Mine(ProcessingStage):\n"
        "    def __init__(self):\n"
        "        self.words = {'alpha', 'beta', 'gamma'}\n"
        "    def process(self, task):\n"
        "        return task if task.data in {'alpha', 'beta', 'gamma', 'delta'} else None\n"
        "print(json.dumps(describe_stage(Mine())))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(outputs) == 1


def test_the_removal_of_duplicates_is_described_as_in_the_logs_of_earlier_versions(tmp_path):
    folders = Folder(str(tmp_path / "keys")), Folder(str(tmp_path / "records"))
    plain = describe_stage(RemoveDuplicates("unique", "duplicate", *folders))["attributes"]
    assert sorted(plain) == ["_counts", "folder", "reason", "records"]
    assert describe_stage(RemoveDuplicates("unique", "duplicate", *folders, ["vector"]))["attributes"] == {
        **plain,
        "dropped": ["vector"],
    }


def test_a_field_that_is_left_out_is_the_same_as_its_default():
    for stage in (Score, ScoreFilter):
        left_out = describe_stage(stage(ShortLinesFilter()))
        assert left_out == describe_stage(stage(ShortLinesFilter(), text_field="text"))
        assert left_out != describe_stage(stage(ShortLinesFilter(), text_field="body"))
    assert describe_stage(recipe("gopher-quality"))["text_field"] == "text"
    assert describe_stage(recipe("gopher-quality", text_field="body"))["text_field"] == "body"
