"""Errors of a pipeline file: each has its line, and a near match if there is one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gristmill.config.load import load
from gristmill.errors import PipelineFileError

HEAD = "name: test\nimports: [house_stages]\nstages:\n"


def problems(folder: Path, text: str) -> list[str]:
    (folder / "p.yaml").write_text(text)
    with pytest.raises(PipelineFileError) as caught:
        load("p.yaml")
    return str(caught.value).split("\n")


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("- MakeText: {texts: []}", "4: stage 'MakeText' is not known. Did you mean 'MakeTexts'?"),
        ("- maketexts: {texts: []}", "4: stage 'maketexts' is not known. Did you mean 'MakeTexts'?"),
        ("- Zebra", "4: stage 'Zebra' is not known. 'gristmill stages' lists them all."),
        ("- MakeTexts:\n      texts: []\n      copeis: 2", "6: MakeTexts has no argument 'copeis'. Did you mean"),
        ("- MakeTexts: {text: [a]}", "4: MakeTexts has no argument 'text'. Did you mean 'texts'?"),
        ("- Same: {zzz: 1}", "4: Same has no argument 'zzz'. It takes none."),
        ("- MakeTexts: {copies: 2}", "4: MakeTexts needs the argument 'texts', a list"),
        ("- MakeTexts: {texts: a}", "4: MakeTexts: 'texts' wants a list, not the text 'a'."),
        ("- MakeTexts: {texts: [3]}", "4: MakeTexts: 'texts'[0] wants text, not the number 3."),
        ("- MakeTexts: {texts: [], copies: 2.5}", "4: MakeTexts: 'copies' wants a whole number, not the number 2.5."),
        ("- MakeTexts: {texts: [], copies: true}", "4: MakeTexts: 'copies' wants a whole number, not true."),
        ("- MakeTexts: {texts: [], ratio: x}", "4: MakeTexts: 'ratio' wants a number, not the text 'x'."),
        ("- MakeTexts: {texts: [], copies: 0}", "4: MakeTexts: copies must be at least 1."),
        ("- MakeTexts: [a]", "4: MakeTexts wants its arguments as a mapping"),
        ("- ScoreFilter: {filter_obj: ShortLineFilter}", "Did you mean 'ShortLinesFilter'?"),
        ("- ScoreFilter: {filter_obj: {ShortLineFilter: {}}}", "Did you mean 'ShortLinesFilter'?"),
        ("- ScoreFilter: {filter_obj: Same}", "4: ScoreFilter: 'filter_obj' wants a DocumentFilter, and Same is none"),
        (
            "- ScoreFilter:\n      filter_obj:\n        - ShortLinesFilter:\n            lenght: 3",
            "7: ShortLinesFilter has no argument 'lenght'. Did you mean 'length'?",
        ),
        ("- ScoreFilter: {filter_obj: ShortLinesFilter, invert: no}", "not the text 'no'. Write true or false."),
        ("- ShortLinesFilter", "4: 'ShortLinesFilter' is not a stage"),
        ("- 3", "4: a stage is 'Name: {arguments}' or 'recipe: NAME', not the number 3"),
        ("- {Same: {}, Twice: {}}", "4: a stage is one name with its arguments"),
        ("- Same: {}\n    wiht: {batch_size: 2}", "4: a stage is one name with its arguments"),
        ("- stage: Same\n    wiht: {batch_size: 2}", "5: a stage has no 'wiht' beside it. Did you mean 'with'?"),
        ("- Same: {}\n    with: {batch_siz: 2}", "5: there is no setting 'batch_siz'. Did you mean 'batch_size'?"),
        ("- Same: {}\n    with: {batch_size: 0}", "5: stage 'Same': batch_size must be a whole number of at least 1"),
        ("- Same: {}\n    with: {resources: {cpu: 1}}", "5: Resources has no argument 'cpu'. Did you mean 'cpus'?"),
        ("- Same: {}\n    with: {resources: {cpus: -1}}", "5: Resources: cpus must not be negative"),
        ("- recipe: fineweeb", "4: recipe 'fineweeb' is not known. Did you mean 'fineweb'?"),
        ("- recipe: fineweb@7", "4: recipe 'fineweb' has no version '7'. There is: fineweb@1, fineweb@2"),
        (
            "- recipe: {name: fineweb, set: {short_line.length: 3}}",
            "4: recipe 'fineweb' has no rule 'short_line'. Did you mean 'short_lines'?",
        ),
        ("- _target_: os.system\n    command: ls", "4: _target_ 'os.system' is not gristmill's: add 'imports: [os]'"),
        ("- _target_: nemo_curator.stages.text.ScoreFilter", "write 'ScoreFilter: {...}'"),
        ("- _target_: gristmill.ScoreFilter", "Did you mean 'gristmill.stages.text.filters.score_filter.ScoreFilter'?"),
        ("- _target_: gristmill.cli.main.main", "4: stage 'main' is not known"),
        ("- _target_: house_stages.Sam", "4: _target_ 'house_stages.Sam' is not there. Did you mean 'Same'?"),
        ("- _target_: house_stages.pa", "4: _target_ 'house_stages.pa' is neither a stage nor registered"),
        ("- _target_: house_stages.pa.table", "4: _target_ 'house_stages.pa.table' is not there."),
        ("- Same: {}\n  - Same: !!python/object/apply:os.system [ls]", "the tag !!python/object/apply:os.system"),
        ("- Same: !mine 3", "'3' with the tag !mine is not allowed"),
        ("- MakeTexts:\n\ttexts: []", "5: there is a tab: YAML is indented by spaces"),
        ("- Same: {a: 1\n", "this is not YAML"),
        ("- MakeTexts: {texts: [], texts: [a]}", "4: the key 'texts' is there already, at p.yaml:4"),
        ("- Same: &x {<<: *x}", "not supported"),
    ],
)  # fmt: skip
def test_each_error_has_its_line_and_a_near_match(folder, item, says):
    found = problems(folder, f"{HEAD}  {item}\n")
    assert len(found) == 1, found
    assert found[0].startswith("p.yaml:")
    assert says in found[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "p.yaml:1: a pipeline is a mapping with a list of 'stages', not nothing"),
        ("- a", "p.yaml:1: a pipeline is a mapping with a list of 'stages', not a list"),
        ("name: x", "p.yaml:1: a pipeline needs 'stages'"),
        ("stages: []", "p.yaml:1: a pipeline needs 'stages'"),
        ("stages: {a: b}", "p.yaml:1: a pipeline needs 'stages'"),
        ("stagse: [Same]", "p.yaml:1: a pipeline has no 'stagse'. Did you mean 'stages'?"),
        ("name: [a]\nstages: [recipe: fineweb]", "p.yaml:1: 'name' wants text, not a list"),
        ("imports: [os.system()]\nstages: [recipe: fineweb]", "p.yaml:1: imports wants names of modules"),
        ("imports: house_stage\nstages: [recipe: fineweb]", "there is no module 'house_stage'"),
        ("executor: loca\nstages: [recipe: fineweb]", "p.yaml:1: executor 'loca' is not known. Did you mean 'local'?"),
        ("executor:\n  local: {num_cpu: 2}\nstages: [recipe: fineweb]", "p.yaml:2: LocalExecutor has no option"),
        ("a: \x07", "p.yaml:1: there is a character that YAML does not allow"),
        ("stages: [a]\n---\nstages: [b]\n", "p.yaml:2: this is not YAML"),
        ("? [a]\n: b", "p.yaml:1: a key must be a plain text"),
        ("[" * 1500, "p.yaml: it is nested too deeply"),
        ("a: &a [*a]\nstages: *a", "an alias stands inside of what it names"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_pipeline_is_an_error(folder, text, says):
    assert says in problems(folder, text)[0]


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(folder):
    text = HEAD + "  - MakeText: {}\n  - recipe: c5\n  - ScoreFilter: {filter_obj: ShortLines, invert: 3}\n"
    lines = [line.split(": ")[0] for line in problems(folder, text)]
    assert lines == ["p.yaml:4", "p.yaml:5", "p.yaml:6", "p.yaml:6"]


def test_a_class_outside_gristmill_needs_an_import_even_when_it_is_loaded(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    import house_stages  # noqa: F401  # registers its stages

    found = problems(folder, "stages:\n  - Same\n")
    assert found == ["p.yaml:2: stage 'Same' is not gristmill's: add 'imports: [house_stages]' to the file"]


def test_a_file_of_aliases_does_not_grow_without_bound(folder):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    assert "with its aliases written out" in problems(folder, "\n".join(lines))[0]


def test_a_missing_file_and_a_binary_file_are_errors(folder):
    (folder / "pipeline.yaml").write_text("stages: []")
    with pytest.raises(PipelineFileError, match=r"pipelin\.yaml: there is no such file\. Did you mean 'pipeline.yaml'"):
        load("pipelin.yaml")
    (folder / "b.yaml").write_bytes(b"name: \xff")
    with pytest.raises(PipelineFileError, match=r"b\.yaml: the file is not UTF-8: byte 6 is 0xff"):
        load("b.yaml")


def test_a_failed_import_inside_an_imported_module_is_its_own_error(folder):
    (folder / "lacking_stages.py").write_text("import no_such_thing\n")
    (folder / "p.yaml").write_text("imports: [lacking_stages]\nstages: [recipe: fineweb]\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_thing"):
        load("p.yaml")


def test_a_file_beside_the_pipeline_does_not_shadow_an_installed_module(folder, monkeypatch):
    installed = folder / "installed"
    installed.mkdir()
    (installed / "house_tools.py").write_text("WHERE = 'installed'\n")
    (folder / "house_tools.py").write_text("WHERE = 'beside'\n")
    monkeypatch.setattr(sys, "path", [*(p for p in sys.path if p not in ("", str(folder))), str(installed)])
    monkeypatch.delitem(sys.modules, "house_tools", raising=False)
    load("imports: [house_tools, house_stages]\nstages:\n  - Same\n")
    assert sys.modules.pop("house_tools").WHERE == "installed"
    assert "house_stages" in sys.modules


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_a_file_that_is_no_regular_file_does_not_block(tmp_path, kind):
    path = tmp_path / "p.yaml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(PipelineFileError, match=r"p\.yaml: it is not a regular file"):
        load(str(path))


def test_a_nul_in_the_name_of_a_file_is_a_plain_error(tmp_path):
    with pytest.raises(PipelineFileError, match=r"cannot be read: .*null byte"):
        load(str(tmp_path / "a\0b.yaml"))
