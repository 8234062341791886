"""docs/architecture.md shows the tree as it is."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "gristmill"
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")

spec = importlib.util.spec_from_file_location("make_file_map", ROOT / "scripts" / "make_file_map.py")
assert spec is not None and spec.loader is not None
file_map = importlib.util.module_from_spec(spec)
spec.loader.exec_module(file_map)


def test_the_file_map_is_that_of_the_tree():
    assert file_map.with_map(PAGE) == PAGE, "run scripts/make_file_map.py"


def test_every_module_has_a_first_sentence():
    modules = [path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    assert [str(path.relative_to(PACKAGE)) for path in modules if not file_map.summary(path)] == []


def test_every_package_is_in_the_table_of_packages():
    table = PAGE.partition("| package | contents |")[2].partition("\n\n")[0]
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE)) == packages


def test_files_that_the_text_names_exist():
    text = PAGE.partition("## File map")[0]
    names = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")}
    shown = re.findall(r"`([\w/]+\.py)`", text)
    assert [name for name in shown if not any(f"/{there}".endswith(f"/{name}") for there in names)] == []
