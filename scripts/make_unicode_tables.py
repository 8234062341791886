"""Make ``unicode.bin`` (the classes of all code points) and ``normal.bin`` (normal form C).

    python scripts/make_unicode_tables.py

Both come from the `unicodedata` of the Python that runs this. The files are part of the package, so that results do not
depend on the Python that a pipeline runs on.
"""

from __future__ import annotations

import sys
import unicodedata
import zlib
from functools import cache
from pathlib import Path

import numpy as np

from gristmill.kernels import folding
from gristmill.kernels.unicode import BLOCK, CODE_POINTS, PATH, UNICODE_VERSION, Class

SENTENCE_MARKS = set("?!,.") | set(
    "¡¿\u037e،؟۔।॥՜՝՞։។៕၊။།༎፡።፣፤፥፧‼⁇⁈⁉、。！，．？｡､"  # their counterparts in other scripts
)
END_MARKS = set(".?!\"'") | set("…⋯\u037e؟۔।॥՜՞։។៕။།༎።፧‼⁇⁈⁉。！．？｡」』｣＂＇")
QUOTES_AMONG_BRACKETS = set("‚„〝〞〟")
BULLETS = set("•‣⁃⁌⁍∙○●◘◦⦾⦿▶◀■□▪▫–-*")
ELLIPSES = set("…⋯")
MORE = (
    (SENTENCE_MARKS | {"\n"}, int(Class.PLAIN)),
    (END_MARKS, int(Class.END_MARK)),
    (BULLETS, int(Class.BULLET)),
    (ELLIPSES, int(Class.ELLIPSIS)),
)


@cache
def of_category(category: str) -> int:
    """The characters of one of Unicode's general categories."""
    found = 0
    if category[0] == "L":
        found |= Class.LETTER
    if category == "Nd":
        found |= Class.DIGIT
    if category[0] in "LMN":
        found |= Class.ALPHANUMERIC | Class.PLAIN
    if category[0] == "P":
        found |= Class.PUNCTUATION
    if category in ("Lu", "Lt"):
        found |= Class.UPPER
    if category in ("Ps", "Pe"):
        found |= Class.BRACKET
    if category in ("Pi", "Pf"):
        found |= Class.END_MARK
    return int(found)


def classes_of(char: str) -> int:
    """The properties of one character."""
    found = of_category(unicodedata.category(char))
    if char.isspace():
        found |= int(Class.SPACE)
    for chars, more in MORE:
        if char in chars:
            found |= more
    return found & ~int(Class.BRACKET) if char in QUOTES_AMONG_BRACKETS else found


def normal_tables() -> list[list[int]]:
    """The tables of `folding.normal` as they are stored, without Hangul syllables."""
    marks: list[int] = []
    decomposed: dict[int, str] = {}
    pairs: dict[tuple[int, int], int] = {}
    changing = {code for first, last in folding.HANGUL_MARKS for code in range(first, last + 1)}
    for code in range(CODE_POINTS):
        char = chr(code)
        if unicodedata.combining(char):
            marks.append(code)
        one_step = unicodedata.decomposition(char)
        if not one_step or one_step.startswith("<"):
            continue
        decomposed[code] = unicodedata.normalize("NFD", char)
        if unicodedata.normalize("NFC", char) != char:
            changing.add(code)
        else:
            first, second = (int(part, 16) for part in one_step.split())
            pairs[first, second] = code
            changing.add(second)
    ranks = [unicodedata.combining(chr(code)) for code in marks]
    in_order = sorted(pairs)
    return [
        [*marks, *ranks],
        sorted(changing),
        list(decomposed),
        [len(parts) for parts in decomposed.values()],
        [ord(part) for parts in decomposed.values() for part in parts],
        [*(first for first, _ in in_order), *(second for _, second in in_order)],
        [pairs[pair] for pair in in_order],
    ]


def packed(tables: list[list[int]]) -> bytes:
    arrays = [np.array(table, "<u4") for table in ([len(table) for table in tables], *tables)]
    return zlib.compress(b"".join(array.tobytes() for array in arrays), 9)


def main() -> None:
    if unicodedata.unidata_version != UNICODE_VERSION:
        sys.exit(f"this Python has Unicode {unicodedata.unidata_version}, the tables are of {UNICODE_VERSION}.")
    classes = np.array([classes_of(chr(code)) for code in range(CODE_POINTS)], dtype="<u2")
    blocks, where = np.unique(classes.reshape(-1, BLOCK), axis=0, return_inverse=True)
    if len(blocks) > 256:
        sys.exit(f"{len(blocks)} blocks do not fit into one byte: make BLOCK larger.")
    Path(PATH).write_bytes(zlib.compress(where.astype(np.uint8).tobytes() + blocks.tobytes(), 9))
    folding.PATH.write_bytes(packed(normal_tables()))


if __name__ == "__main__":
    main()
