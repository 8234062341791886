"""Hooks of the documentation site (mkdocs.yml): pages from files outside docs/, and pages generated from the code."""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import re
import textwrap
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from gristmill import dedup, text
from gristmill.cli.main import main as command_line

ROOT = Path(__file__).resolve().parents[1]
FROM_FILES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "benchmarks.md": "benchmarks/RESULTS.md",
    "benchmarks-text-filters.md": "benchmarks/text_filters/RESULTS.md",
    "deploy.md": "deploy/README.md",
}
PAGE_OF_FILE = {file: page for page, file in FROM_FILES.items()}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
SHORT_PACKAGES = {"gristmill.text": text.__all__, "gristmill.dedup": dedup.__all__}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    pages = {page: (ROOT / file).read_text(encoding="utf-8") for page, file in FROM_FILES.items()}
    pages["index.md"] = f"---\nhide: [navigation]\n---\n{pages['index.md']}"
    pages |= {"reference/stages.md": stages_page(), "reference/cli.md": command_line_page()}
    for page, content in pages.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links to files of the repository lead to their pages, and drop links to files without one."""
    uri = page.file.src_uri
    folder = posixpath.dirname(FROM_FILES.get(uri, f"docs/{uri}"))

    def link(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        path, hash_sign, anchor = target.partition("#")
        if "://" in target or not path:
            return match[0]
        file = posixpath.normpath(posixpath.join(folder, path))
        if file in PAGE_OF_FILE:
            there = PAGE_OF_FILE[file]
        elif file.startswith("docs/"):
            there = file.removeprefix("docs/")
        else:
            return label
        return f"{image}[{label}]({posixpath.relpath(there, posixpath.dirname(uri) or '.')}{hash_sign}{anchor})"

    return LINK.sub(link, markdown)


def printed(*arguments: str) -> str:
    """Return what the command line prints."""
    os.environ["COLUMNS"] = "100"
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        command_line(list(arguments))
    return out.getvalue()


def command_line_page() -> str:
    overview = printed("--help")
    parts = ["# Command line", "", *block("text", overview)]
    for command in re.findall(r"^    ([\w-]+)", overview, re.MULTILINE):
        parts += ["", f"## gristmill {command}", "", *block("text", printed(command, "--help"))]
    return "\n".join(parts)


def stages_page() -> str:
    """Return a page of all that `gristmill stages` lists, with arguments and docstrings."""
    parts = [
        "# Stages, filters and modifiers",
        "",
        "`gristmill stages NAME` prints the same. [Pipelines as YAML](../pipelines.md) explains the syntax, and",
        "[Recipes](../recipes.md) lists the published sets of rules.",
    ]
    for line in printed("stages").splitlines():
        entry = re.match(r"  (\w+)\(", line)
        if line.startswith("recipes"):
            break
        if re.match(r"\w", line) and not line.startswith("gristmill"):
            parts += ["", f"## {line[0].upper()}{line[1:]}"]
        elif entry:
            parts += ["", f"### {entry[1]}", "", *entry_of(entry[1])]
    return "\n".join(parts)


def entry_of(name: str) -> list[str]:
    """Return a class's signature, description and YAML as Markdown."""
    lines = printed("stages", name).rstrip().splitlines()
    end = next(n for n, line in enumerate(lines) if not line)
    package = next((package for package, names in SHORT_PACKAGES.items() if name in names), None)
    imported = f"from {package} import {name}" if package else lines[-2].removeprefix("Python: ")
    description = textwrap.dedent("\n".join(lines[end + 1 : -3]))
    return [
        *block("python", f"{imported}\n\n" + "\n".join(lines[:end])),
        "",
        description,
        "",
        f"YAML: `{lines[-1][8:]}`",
    ]


def block(language: str, content: str) -> list[str]:
    return [f"```{language}", content.rstrip(), "```"]
