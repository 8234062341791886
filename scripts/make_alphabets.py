"""Writes the table of alphabets behind `HistogramFilter` from Unicode's CLDR (its ``cldr-misc-full`` npm package).

    npm pack cldr-misc-full && tar xzf cldr-misc-full-*.tgz
    python scripts/make_alphabets.py package

A line of the table is a language, a tab, and the code points of its characters: ``de<TAB>41-5A 61-7A C4 ...``.
They are CLDR's main exemplar characters in lower, upper and title case, composed and decomposed, and its digits and
punctuation. Languages written in several scripts have a line for each (``sr``, ``sr-Latn``); regions have none.
Languages with ideographs have those that are rarer as well (CLDR's auxiliary ones), and full-width punctuation.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from pathlib import Path

TABLE = Path(__file__).parents[1] / "src/gristmill/stages/text/filters/alphabets.txt"
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Z][a-z]{3})?")
SETS = ("exemplarCharacters", "numbers", "punctuation")

IDEOGRAPH = re.compile("[\u3400-\u9fff\U00020000-\U000323af]")
FULL_WIDTH = (0x3000, 0x303F), (0xFF01, 0xFF0F), (0xFF10, 0xFF20), (0xFF61, 0xFF65)

ELEMENT = re.compile(r"\\u([0-9A-Fa-f]{4})|\\(.)|(.)", re.DOTALL)


def characters(unicode_set: str) -> set[str]:
    """The characters of a set as CLDR writes them: ``[a-z {ch} \\\\- é]``; those of a sequence one by one."""
    if not (unicode_set.startswith("[") and unicode_set.endswith("]")):
        raise ValueError(f"not a set of characters: {unicode_set!r}")
    found: list[str] = []
    range_open = False
    for match in ELEMENT.finditer(unicode_set[1:-1]):
        code, escaped, plain = match.groups()
        if plain == "-":
            range_open = True
            continue
        if plain in (" ", "{", "}"):
            continue
        char = chr(int(code, 16)) if code else escaped or plain
        if range_open:
            found += map(chr, range(ord(found[-1]) + 1, ord(char) + 1))
            range_open = False
        else:
            found.append(char)
    return set(found)


def all_forms(chars: set[str]) -> set[str]:
    forms: set[str] = set()
    for char in chars:
        for cased in (char, char.lower(), char.upper(), char.title()):
            forms.update(cased, unicodedata.normalize("NFC", cased), unicodedata.normalize("NFD", cased))
    return forms


def ranges(chars: set[str]) -> str:
    codes = sorted(map(ord, chars))
    starts = [code for code in codes if chr(code - 1) not in chars or code == 0]
    ends = [code for code in codes if chr(code + 1) not in chars]
    return " ".join(f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in zip(starts, ends, strict=True))


def main(package: Path) -> None:
    version = json.loads((package / "package.json").read_text(encoding="utf-8"))["version"]
    lines = []
    for folder in sorted((package / "main").iterdir()):
        if not LANGUAGE.fullmatch(folder.name):
            continue
        document = json.loads((folder / "characters.json").read_text(encoding="utf-8"))
        found = document["main"][folder.name]["characters"]
        if not characters(found["exemplarCharacters"]):
            continue
        chars = set().union(*(characters(found.get(name, "[]")) for name in SETS))
        if "\u4e00" in chars:
            chars |= {chr(code) for first, last in FULL_WIDTH for code in range(first, last + 1)}
            chars |= {char for char in characters(found.get("auxiliary", "[]")) if IDEOGRAPH.match(char)}
        lines.append(f"{folder.name}\t{ranges(all_forms(chars))}\n")
    head = f"# Characters of {len(lines)} languages, from Unicode CLDR {version}, by scripts/make_alphabets.py.\n"
    notice = "# Data of Unicode, Inc., under the Unicode License v3: see alphabets.LICENSE.txt.\n"
    TABLE.write_text(head + notice + "".join(lines), encoding="utf-8")
    TABLE.with_name("alphabets.LICENSE.txt").write_bytes((package / "LICENSE").read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
