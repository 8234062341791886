"""Print figures of the code's health: `python scripts/code_health.py [TREE] [--check]`.

TREE is the root of a checkout, this one by default, so that two commits can be compared. `--check` compares figures
with their limits in code_health.toml, beside this file, and exits with 1 if one is above it.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
MOST_COMPLEXITY = 15
MOST_PARAMETERS = 8
PIPELINE = """\
stages:
  - JsonlReader: {file_paths: input.jsonl}
  - ScoreFilter: {filter_obj: {WordCountFilter: {min_words: 2}}}
  - JsonlWriter: {path: output/}
"""
# Written as sitecustomize.py, so that each process of the run reports the modules that it imports.
REPORT_IMPORTS = """\
import os, sys

class Report:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "gristmill":
            with open(os.environ["REPORT_IMPORTS"], "a") as file:
                file.write(name + "\\n")

sys.meta_path.insert(0, Report())
"""


def parsed(tree: Path) -> Iterator[tuple[Path, str, ast.Module]]:
    """Yield the path (from the package), the text and the syntax tree of each module."""
    package = tree / "src" / "gristmill"
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield path.relative_to(package), text, ast.parse(text)


def is_dict_use(node: ast.AST) -> bool:
    """Return whether the node is a ``__dict__``, or a call of `vars`, which returns one."""
    is_vars = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "vars"
    return is_vars or (isinstance(node, ast.Attribute) and node.attr == "__dict__")


def is_name_in_dict(node: ast.AST) -> bool:
    """Return whether the node looks a literal name up in a ``__dict__``: ``vars(x).get("a")``, ``"a" in vars(x)``."""
    match node:
        case ast.Call(func=ast.Attribute(value=looked_up), args=[ast.Constant(), *_]):
            return is_dict_use(looked_up)
        case ast.Subscript(value=looked_up, slice=ast.Constant()):
            return is_dict_use(looked_up)
        case ast.Compare(left=ast.Constant(), comparators=[looked_up]):
            return is_dict_use(looked_up)
    return False


def string_probe(node: ast.AST) -> bool:
    """Return whether the node looks an attribute up by a literal name: getattr, hasattr, or in a ``__dict__``."""
    return is_name_in_dict(node) or (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
    )


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of named parameters, without self and cls."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def has_many_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function has too many. A Triton kernel takes pointers and sizes one by one: it cannot have fewer."""
    is_kernel = any(ast.unparse(decorator) == "triton.jit" for decorator in function.decorator_list)
    return parameters(function) > MOST_PARAMETERS and not is_kernel


def complex_functions(tree: Path) -> list[str]:
    """Return the functions that ruff finds too complex."""
    limit = f"lint.mccabe.max-complexity={MOST_COMPLEXITY}"
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "C901"]
    run = subprocess.run(
        [*command, "--config", limit, "--output-format", "json", str(tree / "src")], capture_output=True, text=True
    )
    if run.returncode > 1:
        sys.exit(f"ruff failed: {run.stderr}")
    package = (tree / "src" / "gristmill").resolve()
    return [
        f"{Path(found['filename']).relative_to(package)}:{found['location']['row']} {found['message']}"
        for found in json.loads(run.stdout)
    ]


def lines_of_a_run(tree: Path, with_report: bool) -> int:
    """Return the source lines that all processes of a small `gristmill run` import, compiled kernels being cached.

    By default a run writes a report and adds to the profile store. With both switched off nothing of them is imported.
    """
    source = tree.resolve() / "src"
    has_report = (source / "gristmill" / "report").is_dir()
    switches = ["--no-report", "--no-profile-store"] if has_report and not with_report else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pipeline.yaml").write_text(PIPELINE)
        (folder / "input.jsonl").write_text('{"text": "three short words"}\n{"text": "one"}\n')
        (folder / "site").mkdir()
        (folder / "site" / "sitecustomize.py").write_text(REPORT_IMPORTS)
        environment = os.environ | {
            "PYTHONPATH": f"{folder / 'site'}:{source}",
            "REPORT_IMPORTS": str(folder / "imports"),
            "GRISTMILL_PROFILE_STORE": str(folder / "profiles.jsonl"),
        }
        for _ in range(2):
            (folder / "imports").write_text("")
            command = [sys.executable, "-m", "gristmill", "run", "pipeline.yaml", "--fresh", "--view", "off", *switches]
            run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            if run.returncode:
                sys.exit(f"the pipeline failed: {run.stderr}")
        lines = 0
        for module in set((folder / "imports").read_text().split()):
            path = source.joinpath(*module.split("."))
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            lines += len(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else 0
    return lines


def measure(tree: Path) -> dict[str, tuple[int, list[str]]]:
    """Return each figure with the places that it counts."""
    places: dict[str, list[str]] = defaultdict(list)
    classes: dict[str, list[str]] = defaultdict(list)
    files = lines = 0
    for path, text, module in parsed(tree):
        files += 1
        lines += len(text.splitlines())
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(r"#\s*type:\s*ignore", line):
                places["type_ignore"].append(f"{path}:{number}")
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(str(path))
            elif string_probe(node):
                places["string_probes"].append(f"{path}:{node.lineno}")
            elif is_dict_use(node):
                places["dict_uses"].append(f"{path}:{node.lineno}")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and has_many_parameters(node):
                places["many_parameters"].append(f"{path}:{node.lineno} {node.name} ({parameters(node)})")
    places["duplicate_classes"] = [f"{name}: {', '.join(at)}" for name, at in sorted(classes.items()) if len(at) > 1]
    places["complex_functions"] = complex_functions(tree)
    contracts = tomllib.loads((tree / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    places["ignore_imports"] = [entry for contract in contracts for entry in contract.get("ignore_imports", ())]
    names = (
        "duplicate_classes",
        "string_probes",
        "dict_uses",
        "ignore_imports",
        "complex_functions",
        "many_parameters",
        "type_ignore",
    )
    figures = {"files": (files, []), "lines": (lines, [])} | {n: (len(places[n]), places[n]) for n in names}
    return figures | {
        "lines_imported_by_run": (lines_of_a_run(tree, with_report=False), []),
        "lines_with_report": (lines_of_a_run(tree, with_report=True), []),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", nargs="?", type=Path, default=HERE.parent)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a figure is above its limit")
    parser.add_argument("--list", action="store_true", help="print the places that each figure counts")
    arguments = parser.parse_args()
    limits = tomllib.loads((HERE / "code_health.toml").read_text())
    above = 0
    for name, (figure, places) in measure(arguments.tree).items():
        limit = limits.get(name, figure)
        above += figure > limit
        mark = f"  above the limit of {limit:,}" if arguments.check and figure > limit else ""
        print(f"{name:<22} {figure:>7,}{mark}")
        if arguments.list or mark:
            print("".join(f"    {place}\n" for place in places), end="")
    return 1 if arguments.check and above else 0


if __name__ == "__main__":
    sys.exit(main())
