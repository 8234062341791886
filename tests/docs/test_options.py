"""docs/options.md names every option, with its default."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from gristmill import LocalExecutor, ProcessingStage

PAGE = (Path(__file__).parents[2] / "docs/options.md").read_text(encoding="utf-8")
FIELDS = fields(LocalExecutor().config)


def defaults() -> dict[str, str]:
    """Return the default of each option in the page's table, as text."""
    table = PAGE.partition("| key | default | meaning |")[2].partition("\n\n")[0]
    found = {}
    for row in table.splitlines()[2:]:
        keys, default, _ = (cell.strip() for cell in row.strip("|").split(" | "))
        found |= dict.fromkeys(re.findall(r"`(\w+)`", keys), default)
    return found


def test_the_page_names_every_option_and_no_other():
    assert sorted(defaults()) == sorted(field.name for field in FIELDS)


@pytest.mark.parametrize("field", [f for f in FIELDS if f.default is not None], ids=lambda f: f.name)
def test_the_page_has_the_true_default(field):
    value = field.default
    words = f'`"{value}"`' if isinstance(value, str) else str(value) if isinstance(value, bool) else f"{value:g}"
    assert defaults()[field.name] == words


@pytest.mark.parametrize("setting", [p for p in inspect.signature(ProcessingStage.with_).parameters if p != "self"])
def test_the_page_names_every_setting_of_a_stage(setting):
    table = PAGE.partition("## Stage options")[2].partition("\n## ")[0]
    assert re.search(rf"^\| `{setting}\b", table, re.MULTILINE)
