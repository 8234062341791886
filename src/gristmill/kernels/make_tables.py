"""Makes ``unicode.bin``: the classes of all code points, by the `unicodedata` of the Python that runs this.

    python -m gristmill.kernels.make_tables

The file is part of the package, so that results do not depend on the Python that a pipeline runs on.
"""

from __future__ import annotations

import sys
import unicodedata
import zlib
from pathlib import Path

import numpy as np

from gristmill.kernels.unicode import BLOCK, CODE_POINTS, PATH, UNICODE_VERSION, Class

SENTENCE_MARKS = set("?!,.") | set(
    "¡¿\u037e،؟۔।॥՜՝՞։។៕၊။།༎፡።፣፤፥፧‼⁇⁈⁉、。！，．？｡､"  # their counterparts in other scripts
)
END_MARKS = set(".?!\"'") | set("…⋯\u037e؟۔।॥՜՞։។៕။།༎።፧‼⁇⁈⁉。！．？｡」』｣＂＇")
QUOTES_AMONG_BRACKETS = set("‚„〝〞〟")
BULLETS = set("•‣⁃⁌⁍∙○●◘◦⦾⦿▶◀■□▪▫–-*")
ELLIPSES = set("…⋯")


def classes_of(char: str) -> Class:
    """The classes of one character."""
    category = unicodedata.category(char)
    found = Class(0)
    if category[0] == "L":
        found |= Class.LETTER
    if category == "Nd":
        found |= Class.DIGIT
    if category[0] in "LMN":
        found |= Class.ALPHANUMERIC
    if char.isspace():
        found |= Class.SPACE
    if category[0] == "P":
        found |= Class.PUNCTUATION
    if category in ("Lu", "Lt"):
        found |= Class.UPPER
    if category in ("Ps", "Pe") and char not in QUOTES_AMONG_BRACKETS:
        found |= Class.BRACKET
    if Class.ALPHANUMERIC in found or char == "\n" or char in SENTENCE_MARKS:
        found |= Class.PLAIN
    if char in END_MARKS or category in ("Pi", "Pf"):
        found |= Class.END_MARK
    if char in BULLETS:
        found |= Class.BULLET
    if char in ELLIPSES:
        found |= Class.ELLIPSIS
    return found


def main() -> None:
    if unicodedata.unidata_version != UNICODE_VERSION:
        sys.exit(f"this Python has Unicode {unicodedata.unidata_version}, the tables are of {UNICODE_VERSION}.")
    classes = np.array([classes_of(chr(code)) for code in range(CODE_POINTS)], dtype="<u2")
    blocks, where = np.unique(classes.reshape(-1, BLOCK), axis=0, return_inverse=True)
    if len(blocks) > 256:
        sys.exit(f"{len(blocks)} blocks do not fit into one byte: make BLOCK larger.")
    Path(PATH).write_bytes(zlib.compress(where.astype(np.uint8).tobytes() + blocks.tobytes(), 9))


if __name__ == "__main__":
    main()
