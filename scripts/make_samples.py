"""Run the code blocks of README.md and docs/, and write the output that they show.

    python scripts/make_samples.py [PAGE ...]

The blocks of a page run in order, in an empty folder that the page shows as /data. It has links to examples/ and
benchmarks/.

What a block does depends on its language:

- console: `$ ` begins a command, the lines below it are its output. This script rewrites them; the tests compare them.
  One line `...` stands for lines that are not shown.
- sh: commands that must succeed.
- python: a script that must succeed. pycon: a session, as in doctest.
- yaml: a pipeline, or a list of stages, that must load. json: must parse.
- With `title="FILE"`, the block is written to FILE instead of being run.

Comments on the lines above a block change that:

- `<!-- not run: REASON -->`: do not run it. Python is still compiled, and its imports are made.
- `<!-- prints: PATTERN -->`: the Python script prints a line that the regular expression matches.
- `<!-- exit status: N -->`: the console block's commands end with this status.
- `<!-- setup: COMMAND -->`: run a command that the page does not show. It needs no block.

Nothing is skipped silently. These are errors: code that is indented instead of fenced, an unknown comment, a comment
without effect, `not run` without a reason, and a file that no later block uses.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import doctest
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHOWN_FOLDER = "/data"
MADE_WITH = (3, 11)
"""The Python that the samples were made with: `gristmill init` takes its texts from Python's help."""
TIMEOUT_S = 240
RUNNABLE = ("console", "sh", "python", "pycon", "yaml", "json")

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)(?: +(?P<info>.*))?$")
MARK = re.compile(r"^ *<!-- (?P<name>not run|exit status|prints|setup)(?:: (?P<value>.*?))? -->$")
LANGUAGES_OF_MARK = {"exit status": ("console",), "prints": ("python",)}
GENERATED = re.compile(r"^<!-- [\w ]+: (begin; made by .*|end) -->$")
"""Comments around what another script writes."""
ANY_FENCE = re.compile(r"^ *(```|~~~)")
CONTAINER = re.compile(r"^ *([-*+]|\d+\.|:::|!!!|\?\?\?|===) ?")
"""Begins a list item, or a block of MkDocs: indented lines below it are part of it, not code."""
NUMBER = r"\d[\d,]*(?:\.\d+)?"
UNITS = re.compile(rf"{NUMBER} ?(?:us|ms|s|min|h|[kKMGT]?i?B)\b|{NUMBER} ?%|\b\d+:\d\d(?::\d\d)?\b")
WORKERS = re.compile(r"(?<=# # )\d+(?:-\d+)?\b")


class SampleError(Exception):
    """A block failed, or shows something else than its command prints."""


@dataclass
class Block:
    language: str
    info: str
    line: int
    body: list[str]
    indent: str
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str | None:
        found = re.search(r'title="([^"]+)"', self.info)
        return found[1] if found else None

    @property
    def text(self) -> str:
        return "".join(line.removeprefix(self.indent) + "\n" for line in self.body)


@dataclass
class Setup:
    line: int
    command: str


def parts_of(text: str, where: str = "page") -> Iterator[Block | Setup]:
    """Yield the code blocks and the hidden commands of a page."""
    lines = text.splitlines()
    marks: dict[str, str] = {}
    container = ""  # the last line that was not indented
    number = 0
    while number < len(lines):
        line = lines[number]
        fence, mark = FENCE.match(line), MARK.match(line)
        if fence:
            start = number + 1
            number = next((n for n in range(start, len(lines)) if lines[n].strip() == "```"), -1)
            if number < 0:
                raise SampleError(f"{where}:{start}: the block has no end")
            block = Block(fence["language"], fence["info"] or "", start, lines[start:number], fence["indent"], marks)
            check_marks(block, f"{where}:{start}")
            yield block
            marks = {}
        elif mark and mark["name"] == "setup":
            yield Setup(number, mark["value"])
        elif mark:
            marks[mark["name"]] = mark["value"] or ""
        elif line.strip():
            check_prose(line, lines[number - 1] if number else "", container, f"{where}:{number + 1}")
            if marks:
                raise SampleError(f"{where}:{number + 1}: the comment above belongs to no block")
            container = container if line.startswith(" ") else line
        number += 1
    if marks:
        raise SampleError(f"{where}:{number}: the last comment belongs to no block")


def check_marks(block: Block, where: str) -> None:
    """Require that each comment above a block has an effect, and that `not run` gives a reason."""
    if block.marks.get("not run") == "":
        raise SampleError(f"{where}: `not run` needs a reason")
    for name in block.marks:
        if block.language not in LANGUAGES_OF_MARK.get(name, (block.language,)):
            raise SampleError(f"{where}: `{name}` has no effect on a block of {block.language}")


def check_prose(line: str, before: str, container: str, where: str) -> None:
    """Refuse code that is not in a fenced block, and comments that mean nothing."""
    if ANY_FENCE.match(line):
        raise SampleError(f"{where}: begin a block with ```, a language without a space, and perhaps a title")
    if line.lstrip().startswith("<!--") and not GENERATED.match(line):
        raise SampleError(f"{where}: unknown comment: {line.strip()}")
    if line.startswith("    ") and not before.strip() and not CONTAINER.match(container):
        raise SampleError(f"{where}: code is indented: put it into a fenced block")


def normalised(text: str) -> str:
    """Return the text without times, sizes, shares and white space, which differ from run to run."""
    words = " ".join(UNITS.sub("#", text).split())
    return re.sub("█+", "█", WORKERS.sub("#", words))


class Page:
    """One page, run in a folder of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.writing = False

    def run(self, write: bool = False) -> None:
        """Run all blocks. Compare the output that the page shows, or write it into the page."""
        self.writing = write
        lines = self.text.splitlines()
        parts = list(parts_of(self.text, str(self.path.relative_to(ROOT))))
        self.check_files_are_used(parts)
        shift = 0
        with tempfile.TemporaryDirectory() as name:
            self.folder = Path(name).resolve()
            for shared in ("examples", "benchmarks"):
                (self.folder / shared).symlink_to(ROOT / shared)
            for part in parts:
                if isinstance(part, Setup):
                    self.shell(part.command, part.line)
                    continue
                shown = self.one(part)
                if write and shown is not None:
                    start = part.line + shift
                    lines[start : start + len(part.body)] = [part.indent + line if line else "" for line in shown]
                    shift += len(shown) - len(part.body)
        if write:
            self.path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def check_files_are_used(self, parts: list[Block | Setup]) -> None:
        """Require that a later block names each file that the page writes: it would not run otherwise."""
        for number, part in enumerate(parts):
            if isinstance(part, Block) and part.title and "not run" not in part.marks:
                name = Path(part.title)
                later = [p.command if isinstance(p, Setup) else p.text + p.info for p in parts[number + 1 :]]
                if not any(re.search(rf"\b{re.escape(word)}\b", p) for p in later for word in (name.name, name.stem)):
                    raise SampleError(f"{self.where(part.line)}: no later block uses {part.title}")

    def one(self, block: Block) -> list[str] | None:
        """Run one block; return the lines that a block with output should have."""
        if "not run" in block.marks:
            if block.language == "python":
                check_imports(block.text, self.where(block.line))
        elif block.language not in RUNNABLE:
            raise SampleError(f"{self.where(block.line)}: a block of {block.language or 'no language'} needs `not run`")
        elif block.title:
            file = self.folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            return self.console(block)
        elif block.language == "pycon":
            made, is_true = session(block.text, self.where(block.line))
            if not is_true and not self.writing:
                raise SampleError(f"{self.where(block.line)}: the session is now\n" + "\n".join(made))
            return made
        elif block.language == "python":
            self.python(block)
        elif block.language == "sh":
            self.shell(f"set -e\n{block.text}", block.line)
        else:
            CHECKS[block.language](block.text, self.where(block.line))
        return None

    def python(self, block: Block) -> None:
        (self.folder / "example.py").write_text(block.text, encoding="utf-8")
        output = self.shell("python example.py", block.line)
        pattern = block.marks.get("prints", "")
        if not re.search(pattern, output, re.MULTILINE):
            raise SampleError(f"{self.where(block.line)}: nothing matches {pattern!r} in\n{output}")

    def console(self, block: Block) -> list[str]:
        status = int(block.marks.get("exit status", 0))
        made: list[str] = []
        shown = block.text.splitlines()
        starts = [n for n, line in enumerate(shown) if line.startswith("$ ")]
        if starts[:1] != [0]:
            raise SampleError(f"{self.where(block.line)}: a console block begins with a command")
        for start, end in zip(starts, [*starts[1:], len(shown)], strict=True):
            output = self.shell(shown[start][2:], block.line + start, status)
            expected = shown[start + 1 : end]
            blank = [""] if expected[-1:] == [""] and end < len(shown) else []
            made += [
                shown[start],
                *shortened(output.rstrip().splitlines(), expected[: len(expected) - len(blank)]),
                *blank,
            ]
        if sys.version_info[:2] == MADE_WITH and not self.writing:
            compare(made, shown, self.where(block.line))
        return made

    def shell(self, command: str, line: int, status: int = 0) -> str:
        """Run a command in the page's folder and return its output, with the folder as the page shows it."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "COLUMNS": "80", "PYTHONWARNINGS": "ignore"}
        run = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        output = run.stdout + (run.stderr if status else "")
        if run.returncode != status:
            raise SampleError(f"{self.where(line)}: {command}\nexit status {run.returncode}\n{run.stdout}{run.stderr}")
        return output.replace(str(self.folder), SHOWN_FOLDER)

    def where(self, line: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{line + 1}"


def shortened(output: list[str], shown: list[str]) -> list[str]:
    """Return the output with its middle replaced by `...`, if the page shows it so."""
    if "..." not in shown:
        return output
    head = shown.index("...")
    tail = len(shown) - head - 1
    if len(output) <= head + tail:
        return output
    return [*output[:head], "...", *output[len(output) - tail :]]


def compare(made: list[str], shown: list[str], where: str) -> None:
    if normalised("\n".join(made)) != normalised("\n".join(shown)):
        raise SampleError(
            f"{where}: the output is now\n" + "\n".join(made) + "\nRun scripts/make_samples.py to update the page."
        )


def check_imports(code: str, where: str) -> None:
    """Compile Python that cannot run here, and import every name of gristmill that it imports."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "gristmill":
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    raise SampleError(f"{where}: {node.module} has no {name.name}")


def check_yaml(text: str, where: str) -> None:
    """Load a pipeline, or a list of stages."""
    from gristmill.pipeline import Pipeline

    whole = text if re.search(r"^stages:", text, re.MULTILINE) else "stages:\n" + re.sub("^", "  ", text, flags=re.M)
    try:
        Pipeline.from_yaml(whole)
    except Exception as error:
        raise SampleError(f"{where}: {error}") from error


class Recorder(doctest.DocTestRunner):
    """Keeps what each example of a session prints."""

    def __init__(self) -> None:
        super().__init__(optionflags=doctest.ELLIPSIS)
        self.lines: list[str] = []

    def report_success(self, out: object, test: object, example: doctest.Example, got: str) -> None:
        self.lines += [("... " if n else ">>> ") + line for n, line in enumerate(example.source.splitlines())]
        self.lines += got.splitlines()

    report_failure = report_success


def session(text: str, where: str) -> tuple[list[str], bool]:
    """Run a session, and return it with its true output, and whether that is the output that it shows."""
    runner = Recorder()
    with contextlib.chdir(ROOT):
        results = runner.run(doctest.DocTestParser().get_doctest(text, {}, where, None, None), out=lambda _: None)
    return runner.lines, not results.failed


def check_json(text: str, where: str) -> None:
    try:
        json.loads(text)
    except ValueError as error:
        raise SampleError(f"{where}: {error}") from error


CHECKS = {"yaml": check_yaml, "json": check_json}


def pages() -> list[Path]:
    """Return the pages whose blocks run."""
    others = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "deploy/README.md")]
    return [*others, *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: all")
    os.chdir(ROOT)
    for path in parser.parse_args().pages or pages():
        try:
            Page(path.resolve()).run(write=True)
        except SampleError as error:
            sys.exit(str(error))
        print(path)


if __name__ == "__main__":
    main()
