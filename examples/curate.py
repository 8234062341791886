"""Curate the documentation that is on this machine: docstrings and text files of Python and its packages.

The corpus is collected from this machine; nothing is downloaded. Documents that read like English prose are kept. Other
documents are excluded, with the rule that they broke. With a FOLDER, a second run finds nothing left to do, and a run
that was killed is resumed. Without one, each run starts over.

    python examples/curate.py [FOLDER]
"""

from __future__ import annotations

import ast
import json
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from gristmill.pipeline import Pipeline
from gristmill.stages.text.io import JsonlReader, JsonlWriter
from gristmill.stages.text.modifiers import Modify, NewlineNormalizer, PiiRedactor
from gristmill.stages.text.recipes import recipe

DOCUMENTS_PER_FILE = 2000
MOST_DOCUMENTS = 25_000
LARGEST = 4 << 20


def texts() -> Iterator[tuple[str, str]]:
    """Yield the docstrings and text files of Python's library and of the installed packages."""
    places = sysconfig.get_paths()
    for root in (Path(places["stdlib"]), Path(places["purelib"])):
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            if path.suffix in (".txt", ".md", ".rst") or "LICENSE" in path.name or path.name == "METADATA":
                yield str(path), path.read_text("utf-8", "replace")[:LARGEST]
            elif path.suffix == ".py" and ("site-packages" not in path.parts or root != Path(places["stdlib"])):
                yield from docstrings(path)


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # libraries test parsers with files that are broken on purpose
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield f"{path}:{getattr(node, 'name', 'module')}", text


def make_corpus(folder: Path) -> int:
    """Write the texts as JSON lines, and return their number."""
    warnings.simplefilter("ignore")  # of modules with odd escapes
    folder.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    count = 0
    for count, (source, text) in enumerate(islice(texts(), MOST_DOCUMENTS), 1):
        lines.append(json.dumps({"id": f"doc-{count:06}", "source": source, "text": text}, ensure_ascii=False))
        if len(lines) == DOCUMENTS_PER_FILE:
            write(folder, lines)
    write(folder, lines)
    return count


def write(folder: Path, lines: list[str]) -> None:
    data = "".join(line + "\n" for line in lines).encode("utf-8", "backslashreplace")
    (folder / f"docs-{len(list(folder.iterdir())):03}.jsonl").write_bytes(data)
    lines.clear()


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.gettempdir()) / "gristmill-demo"
    source, output = folder / "input", folder / "output"
    if not source.exists():
        print(f"collecting the documentation on this machine into {source}", flush=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            count = make_corpus(Path(unfinished) / "input")
            folder.mkdir(exist_ok=True)
            (Path(unfinished) / "input").rename(source)
        print(f"{count:,} documents, {sum(f.stat().st_size for f in source.iterdir()) / 1e6:.0f} MB")
    pipeline = Pipeline(
        "curate",
        stages=[
            JsonlReader(file_paths=str(source)),
            recipe("gopher-quality"),
            recipe("gopher-repetition"),
            Modify([NewlineNormalizer(), PiiRedactor()]),
            JsonlWriter(path=str(output)),
        ],
    )
    result = pipeline.run(fresh=len(sys.argv) == 1)
    print(result.summary())
    print(f"\nwhy a document was dropped:  {Path(sys.executable).parent}/gristmill explain {output} doc-000001")


if __name__ == "__main__":
    main()
