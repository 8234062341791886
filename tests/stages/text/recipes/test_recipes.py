"""Recipes on a fixture: which rule drops which document, and golden counts by recipe and by rule."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.text.modifiers.modify import Modify
from gristmill.stages.text.recipes import RECIPES, RecipeStage, find_recipe, recipe
from gristmill.tasks import DocumentBatch

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "golden.json").read_text())
OF_TEXTS = [one for one in RECIPES if all(rule.field is None for rule in one.rules)]
NAMES = [one.name if find_recipe(one.name) is one else f"{one.name}@{one.version}" for one in OF_TEXTS]
"""Each recipe for texts: by its name alone, or with its version if there is a later one."""

_spec = importlib.util.spec_from_file_location("recipe_documents", HERE / "documents.py")
assert _spec is not None and _spec.loader is not None
documents = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(documents)


REASONS = {
    "too few words": "word_count",
    "too many words": "word_count",
    "words too short on average": "mean_word_length",
    "words too long on average": "mean_word_length",
}
"""Reasons that say more than the name of the rule."""


def batch(texts: dict[str, str], field: str = "text") -> DocumentBatch:
    return DocumentBatch(data=pa.table({"name": list(texts), field: list(texts.values())}))


def verdicts(stage: RecipeStage, texts: dict[str, str], field: str = "text") -> dict[str, str | None]:
    """The rule that drops each document, or None; and that every document has one verdict."""
    kept = stage.process(batch(texts, field))
    found: dict[str, str | None] = dict.fromkeys(kept.data.column("name").to_pylist())
    for dropped in kept.account.dropped:
        reasons = [REASONS.get(reason, reason) for reason in dropped.reasons]
        found |= dict(zip(dropped.rows.column("name").to_pylist(), reasons, strict=True))
    assert set(found) == set(texts)
    return found


@cache
def of_all(name: str) -> dict[str, str | None]:
    return verdicts(recipe(name), documents.DOCUMENTS)


EXPECTED = [(name, doc, rule) for name, docs in documents.EXPECTED.items() for doc, rule in docs.items()]


@pytest.mark.parametrize(("name", "document", "rule"), EXPECTED)
def test_a_document_is_dropped_by_the_rule_it_breaks_and_by_no_other(name, document, rule):
    assert of_all(name)[document] == rule


@pytest.mark.parametrize("name", NAMES)
def test_golden_counts_of_a_recipe(name):
    counts = Counter(rule or "kept" for rule in of_all(name).values())
    assert dict(sorted(counts.items())) == GOLDEN[name]["recipe"]


def alone(name: str) -> dict[str, int]:
    """How many documents each rule would drop, or change, by itself."""
    counts = {}
    for rule in find_recipe(name).rules:
        made = rule.make({})
        whole = batch(documents.DOCUMENTS)
        if isinstance(made, DocumentFilter):
            from gristmill.stages.text.filters.score_filter import ScoreFilter

            counts[rule.key] = whole.num_items - ScoreFilter(made).process(whole).num_items
        else:
            counts[rule.key] = Modify(made).process(whole).account.counters["documents changed"]
    return counts


@pytest.mark.parametrize("name", NAMES)
def test_golden_counts_of_each_rule_by_itself(name):
    assert alone(name) == GOLDEN[name]["rules"]


@pytest.mark.parametrize("name", NAMES)
def test_each_rule_drops_something_of_the_fixture_or_is_known_to_need_a_list(name):
    idle = [rule for rule, count in GOLDEN[name]["rules"].items() if not count]
    assert idle == (["bad_words"] if name == "c4" else [])


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_do_not_depend_on_the_neighbours(name):
    some = dict(list(documents.DOCUMENTS.items())[:7])
    for document, text in some.items():
        assert verdicts(recipe(name), {document: text}) == {document: of_all(name)[document]}


def test_a_recipe_is_one_stage_with_its_name_and_its_rules_as_reasons():
    stage = recipe("fineweb@2", text_field="body")
    assert (stage.name, stage.inputs(), stage.outputs()) == ("fineweb", (["data"], ["body"]), (["data"], []))
    found = verdicts(stage, {"a": "", "b": documents.PROSE}, "body")
    assert found == {"a": "line_punctuation", "b": None}


def test_scores_stand_beside_reasons():
    kept = recipe("fineweb").process(batch({"a": documents.DOCUMENTS["2 of 25 lines with ends"]}))
    (dropped,) = kept.account.dropped
    assert (dropped.reasons, dropped.scores) == (["line_punctuation"], [2 / 25])


def test_scores_are_kept_when_asked_for():
    stage = recipe("fineweb", keep_scores=True)
    names = ["line_punctuation_score", "short_lines_score", "duplicate_line_chars_score", "newlines_score"]
    assert stage.outputs() == (["data"], names)
    kept = stage.process(batch({"a": documents.PROSE}))
    assert [kept.data.column(name)[0].as_py() for name in names[:3]] == [1.0, 0.0, 0.0]


def test_thresholds_are_changed_and_rules_left_out():
    text = {"a": documents.DOCUMENTS["2 of 25 lines with ends"]}
    assert verdicts(recipe("fineweb", set={"line_punctuation.min_ratio": 0.05}), text) == {"a": None}
    assert verdicts(recipe("fineweb", set={"line_punctuation": {"min_ratio": 0.05}}), text) == {"a": None}
    assert verdicts(recipe("fineweb", set={"line_punctuation": False}), text) == {"a": None}


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("finweb", {}, "recipe 'finweb' is not known. Did you mean 'fineweb'?"),
        ("fineweb@3", {}, "recipe 'fineweb' has no version '3'. There is: fineweb@1, fineweb@2"),
        ("fineweb", {"short_line.length": 3}, "has no rule 'short_line'. Did you mean 'short_lines'?"),
        ("fineweb", {"short_lines.lenght": 3}, "rule 'short_lines' has no 'lenght'. Did you mean 'length'?"),
        ("fineweb", {"short_lines": 3}, "'short_lines' wants a mapping of arguments, or false"),
        ("c4", {rule.key: False for rule in find_recipe("c4").rules}, "recipe 'c4' has no rules left"),
    ],
)
def test_a_change_that_does_not_fit_the_recipe_is_an_error(name, changes, says):
    with pytest.raises(ValueError, match=r".") as caught:
        recipe(name, set=changes)
    assert says in str(caught.value)


def test_c4_changes_the_text_that_it_keeps():
    cited = "It says [1] so, and that is what it says[citation needed]."
    gone = ["Home", "See the privacy policy of this very old mill.", "a b c d.", "And more is yet to come ..."]
    text = "\n".join([*gone, *documents.LINES[:3], cited])
    stage = recipe("c4")
    assert stage.outputs() == (["data"], ["text"])
    kept = stage.process(batch({"a": text}))
    wanted = [*documents.LINES[:3], "It says  so, and that is what it says."]
    assert kept.data.column("text").to_pylist() == ["\n".join(wanted)]
    assert kept.account.counters["documents changed"] == 1


def test_bad_words_come_from_a_given_list(tmp_path):
    (tmp_path / "words.txt").write_text("poplars\nhand mill\n\n")
    found = verdicts(recipe("c4", set={"bad_words.file": str(tmp_path / "words.txt")}), {"a": documents.PROSE})
    assert found == {"a": "bad_words"}
    found = verdicts(recipe("c4", set={"bad_words.words": ["popla", "ill"]}), {"a": documents.PROSE})
    assert found == {"a": None}


def test_the_page_on_recipes_has_every_rule_as_it_is():
    page = (HERE.parents[3] / "docs/recipes.md").read_text()
    for one in RECIPES:
        heading = f"## {one.name}" if find_recipe(one.name) is one else f"### {one.name}@{one.version}"
        section = page.split(f"\n{heading}\n")[1].split("\n##")[0]
        assert one.source in section
        rows = [line for line in section.splitlines() if line.startswith("| ") and "`" in line]
        assert len(rows) == len(one.rules)
        for row, rule in zip(rows, one.rules, strict=True):
            arguments = ", ".join(f"{key}={value!r}" for key, value in rule.arguments.items())
            assert f"| `{rule.key}` | {rule.says}" in row and f"`{rule.name}({arguments})`" in row
            assert rule.note in row
