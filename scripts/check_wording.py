"""Report words that the project does not use: `python scripts/check_wording.py [PATH ...]`.

The list is wording.txt, beside this file. Without paths every tracked text file is checked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CHECKED = {".py", ".md", ".yaml", ".yml", ".toml", ".cu", ".h", ".sbatch", ".txt"}
SKIPPED = (
    "constraints.txt",
    "scripts/wording.txt",
    "src/gristmill/stages/text/filters/alphabets.LICENSE.txt",
    "tests/scheduling/failed_seeds.txt",
    "tests/stages/text/recipes/documents.py",
)
"""Files that hold data or sample texts."""
NAME_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")


def rules() -> list[tuple[re.Pattern[str], str]]:
    """Return the forbidden expressions with their replacements."""
    found = []
    for line in (HERE / "wording.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            words, instead = line.split("\t")
            found.append((re.compile(rf"\b(?:{words})\b", re.IGNORECASE), instead))
    return found


def tracked() -> list[Path]:
    """Return the text files that git tracks."""
    root = HERE.parent
    names = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True).stdout.split("\n")
    return [root / name for name in names if name and name not in SKIPPED]


def below(paths: list[str]) -> list[Path]:
    """Return the files that the arguments name: files, and all files of folders."""
    return [file for path in map(Path, paths) for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]


def main() -> int:
    patterns = rules()
    any_word = re.compile("|".join(pattern.pattern for pattern, _ in patterns))
    count = 0
    for file in below(sys.argv[1:]) or tracked():
        if file.suffix not in CHECKED or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8")
        split = NAME_BOUNDARY.sub(" ", text)
        if not (any_word.search(text.lower()) or any_word.search(split.lower())):
            continue  # one search of the whole file, as most files have no such word
        for number, (line, shown) in enumerate(zip(text.splitlines(), split.splitlines(), strict=True), 1):
            for pattern, instead in patterns:
                match = pattern.search(line) or pattern.search(shown)
                if match:
                    count += 1
                    print(f"{file}:{number}: {match[0]!r}: use {instead}")
    print(f"{count} words to replace" if count else "wording: no forbidden words")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
