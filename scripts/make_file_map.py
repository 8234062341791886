"""Write the file map of docs/architecture.md: what each module holds, by the first line of its docstring."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "gristmill"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- file map: begin; made by scripts/make_file_map.py -->\n", "<!-- file map: end -->\n"


def summary(path: Path) -> str:
    """Return the first sentence of a module's docstring, without the full stop."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = " ".join(text.partition("\n\n")[0].split()).replace("|", r"\|").replace("``", "`")
    return first.partition(". ")[0].removesuffix(".")


def file_map() -> Iterator[str]:
    """Yield the lines of the map: a table for each package."""
    for folder in sorted({path.parent for path in PACKAGE.rglob("*.py")}):
        name = folder.relative_to(PACKAGE.parent).as_posix()
        about = summary(folder / "__init__.py") if folder != PACKAGE and (folder / "__init__.py").exists() else ""
        yield from (f"#### {name}/", "")
        if about:
            yield from (f"{about}.", "")
        files = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
        if files:
            yield from ("| file | contents |", "|---|---|")
            yield from (f"| `{path.name}` | {summary(path)} |" for path in files)
            yield ""


def with_map(page: str) -> str:
    """Return the page with the map of the tree as it is."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n" + "\n".join(file_map()) + f"\n{END}{after}"


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    if BEGIN not in page:
        sys.exit(f"{PAGE.relative_to(ROOT)} has no line {BEGIN!r}")
    PAGE.write_text(with_map(page), encoding="utf-8")


if __name__ == "__main__":
    main()
