"""The YAML and the Python form of a pipeline are the same thing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import LocalExecutor, Pipeline, Resources, processing_stage
from gristmill.config.dump import dump
from gristmill.config.load import load
from gristmill.config.nodes import Problems, read
from gristmill.errors import PlanError
from gristmill.stages.text.filters.fineweb import NewlinesToWordsFilter, ShortLinesFilter
from gristmill.stages.text.filters.score_filter import Score, ScoreFilter
from gristmill.stages.text.filters.words import StopWordsFilter
from gristmill.stages.text.recipes import recipe

YAML = """\
name: clean
description: what it does
imports: [house_stages]
executor:
  local: {num_cpus: 2}
stages:
- MakeTexts:
    texts: [one two. Three four., 'no', '1e3']
    copies: 2
- recipe: fineweb@2
- recipe:
    name: fineweb@2
    text_field: body
    set: {short_lines: false, newlines.max_ratio: 1}
- ScoreFilter:
    filter_obj:
    - ShortLinesFilter: {length: 7}
    - StopWordsFilter: {}
    score_field: [a, null]
  name: quality
  with:
    resources: {cpus: 2.0}
    batch_size: 4
    num_workers: 3
"""


def test_a_written_file_is_read_and_written_unchanged(folder):
    assert Pipeline.from_yaml(YAML).to_yaml() == YAML


def test_a_file_gives_the_pipeline_that_python_gives(folder):
    (folder / "p.yaml").write_text(YAML)
    read = Pipeline.from_yaml("p.yaml")
    import house_stages

    made = Pipeline(
        "clean",
        "what it does",
        [
            house_stages.MakeTexts(["one two. Three four.", "no", "1e3"], copies=2),
            recipe("fineweb"),
            recipe("fineweb", text_field="body", set={"short_lines": False, "newlines.max_ratio": 1}),
            ScoreFilter([ShortLinesFilter(length=7), StopWordsFilter()], score_field=["a", None]).with_(
                name="quality", resources=Resources(cpus=2), batch_size=4, num_workers=3
            ),
        ],
    )
    made.executor = read.executor
    assert made.to_yaml() == read.to_yaml() == YAML
    stage = read.stages[3]
    assert (stage.name, stage.resources, stage.batch_size, stage.num_workers()) == ("quality", Resources(cpus=2), 4, 3)
    assert [one.name for one in read.stages[2].rules] == ["line_punctuation", "duplicate_line_chars", "newlines"]
    assert read.stages[2].rules[2].most == 1


def test_the_forms_of_an_item_mean_the_same(folder):
    wanted = dump("p", None, [ScoreFilter(ShortLinesFilter(length=7)).with_(name="s")])
    forms = [
        "ScoreFilter: {filter_obj: {ShortLinesFilter: {length: 7}}}\n    name: s",
        "stage: ScoreFilter\n    args: {filter_obj: {ShortLinesFilter: {length: 7}}}\n    name: s",
        "ScoreFilter:\n      filter_obj:\n        _target_: gristmill.stages.text.filters.fineweb.ShortLinesFilter\n"
        "        length: 7\n    with: {name: s}",
    ]
    for form in forms:
        assert Pipeline.from_yaml(f"name: p\nstages:\n  - {form}\n").to_yaml() == wanted
    target = "_target_: gristmill.stages.text.filters.score_filter.ScoreFilter\n    filter_obj: ShortLinesFilter"
    (stage,) = Pipeline.from_yaml(f"stages:\n  - {target}\n").stages
    assert isinstance(stage, ScoreFilter) and stage.filters[0].length == 30


def test_a_pipeline_from_yaml_runs_with_the_executor_it_names(folder):
    text = YAML.replace("    text_field: body\n", "").replace("num_workers: 3", "num_workers: 1")
    text = text.replace("length: 7", "length: 1")
    pipeline = Pipeline.from_yaml(text.replace("{num_cpus: 2}", "{num_cpus: 2, view: 'off'}"))
    result = pipeline.run(keep_outputs=True)
    assert [len(batch.data) for batch in result] == [0]
    assert result.stages["MakeTexts"].items_out == 6
    assert result.stages["fineweb"].items_in == 6


def test_changes_of_a_composite_are_kept_in_their_order(folder):
    text = "name: p\nimports: [house_stages]\nstages:\n- Twice: {}\n  name: both\n  with:\n"
    text += "  - {batch_size: 2}\n  - stages:\n      first: {batch_size: 3}\n"
    pipeline = Pipeline.from_yaml(text)
    assert [leaf.batch_size for leaf in pipeline.stages[0].flatten()] == [3, 2]
    assert pipeline.to_yaml() == text


def test_the_error_lists_all_stages_that_have_no_name_in_yaml():
    @processing_stage
    def lower(task):
        return task

    class Mine(ScoreFilter):
        pass

    stages = [lower, Mine(ShortLinesFilter()), Score(len, "length"), recipe("fineweb")]
    with pytest.raises(PlanError) as caught:
        Pipeline("p", stages=stages).to_yaml()
    first, one, two, three = str(caught.value).split("\n")
    assert first == "pipeline 'p' cannot be written as YAML:"
    assert "stage 1 'lower' is a function" in one
    assert "stage 2 'Mine'" in two and "is not registered: put @register above the class" in two
    assert "stage 3 'Score': 'score_fn' is the function len" in three


def test_overrides_change_the_content_of_the_file(folder):
    overrides = [
        "MakeTexts.copies=3",
        "quality.filter_obj.ShortLinesFilter.length=9",
        "quality.filter_obj.1.StopWordsFilter.words=[a, b]",
        "quality.with.batch_size=8",
        "2.line_punctuation.min_ratio=1e-2",
        "2.short_lines=false",
        "3.text_field=text",
    ]
    make, plain, _, quality = load(YAML, overrides).stages
    assert make.copies == 3
    assert quality.filters[0].length == 9 and set(quality.filters[1].words) == {"a", "b"}
    assert (quality.batch_size, quality.num_workers()) == (8, 3)
    assert [one.name for one in plain.rules] == ["line_punctuation", "duplicate_line_chars", "newlines"]
    assert plain.rules[0].least == 0.01


def test_a_given_name_wins_over_the_class_of_a_stage():
    text = "stages:\n- ScoreFilter: {filter_obj: ShortLinesFilter}\n  name: Modify\n- Modify: {modifier_fn: C4Lines}\n"
    named, other = load(text, ["Modify.filter_obj.ShortLinesFilter.length=5"]).stages
    assert named.filters[0].length == 5 and other.name == "Modify"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("MakeText.copies=3", "there is no stage 'MakeText'. Did you mean 'MakeTexts'?"),
        ("9.copies=3", "there is no stage '9'. The stages are: MakeTexts, fineweb, quality, ScoreFilter, or 1 to 4."),
        ("MakeTexts.copeis=3", "MakeTexts has no argument 'copeis'. Did you mean 'copies'?"),
        ("MakeTexts.copies=x", "MakeTexts: 'copies' wants a whole number, not the text 'x'."),
        ("fineweb.short_lines.length=3", "there are several stages 'fineweb': write the number of one, 2, 3"),
        ("quality.filter_obj.7=3", "there is no '7' in the list: write a number from 0 to 1."),
        ("quality.filter_obj.ShortLineFilter.length=3", "Did you mean 'ShortLinesFilter'?"),
        ("MakeTexts=3", "write stage.key=value"),
        ("MakeTexts.copies", "write stage.key=value"),
        ("MakeTexts.copies=[", "this is not YAML"),
        ("MakeTexts.copies.x=3", "'x' cannot be set in the number 2, at <text>:9"),
    ],
)
def test_an_override_that_does_not_fit_is_an_error(folder, override, says):
    with pytest.raises(PlanError) as caught:
        load(YAML, [override])
    assert says in str(caught.value) and f"--set {override}" in str(caught.value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
    | st.sampled_from(["no", "on", "1e3", "0o7", "1_000", "2024-01-01", "~", "null", "1:30", "<<", "=", "-", "010"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(plain)
def test_any_plain_value_round_trips(value):
    import yaml

    from gristmill.config.dump import _Dumper

    text = yaml.dump({"key": value}, Dumper=_Dumper, default_flow_style=None, allow_unicode=True)
    problems = Problems()
    node = read(text, "x", problems)
    assert not problems.lines
    assert node is not None and node.plain() == {"key": value}


def test_scalars_are_those_of_yaml_1_2():
    text = "[no, on, 010, 1:30, 1e-3, 0x1F, 0o17, 2024-01-01, .inf, ~, True, +7, 1., 1_000]"
    node = read(text, "x", Problems())
    assert node is not None
    inf = float("inf")
    assert node.plain() == ["no", "on", 10, "1:30", 1e-3, 31, 15, "2024-01-01", inf, None, True, 7, 1.0, "1_000"]


def test_an_executor_that_is_given_wins(folder):
    pipeline = Pipeline.from_yaml("stages:\n- ScoreFilter: {filter_obj: NewlinesToWordsFilter}\n")
    assert isinstance(pipeline.stages[0].filters[0], NewlinesToWordsFilter)
    assert pipeline.executor is None and LocalExecutor().config.num_cpus is None
