"""Text to try kernels on: generated in many scripts, and real."""

from __future__ import annotations

import stringprep
import sys
import textwrap
import unicodedata
from pathlib import Path

from hypothesis import strategies as st

SPACES = [chr(c) for c in range(sys.maxunicode + 1) if chr(c).isspace()]
WORDS = ["a", "b", "the", "of", "eightchr", "sevenlet", "ninechars", "été", "мир", "你好", "नमस्ते", "e\u0301", "👩‍🚀"]
MARKS = ["#", "...", "…", "⋯", "[...]", "(…)", "[…)", ".", "。", "!", "•", "- ", "* ", "\x00", "\x07", "\x1c", "(", "»"]
PHRASES = [
    "Terms of Use",
    "privacy policy",
    "Lorem ipsum",
    "http://a.b/c%20d",
    "https://",
    "https://x.Porn/y",
    "http:/",
]

anything = st.text(st.characters(exclude_categories=["Cs"]))
pieces = st.sampled_from([*WORDS, *SPACES, *MARKS, *PHRASES, " ", " ", " ", " ", "\n", "\n", "\n\n", "\r\n"])
texts = st.one_of(
    st.lists(st.one_of(pieces, pieces, anything), max_size=60).map("".join),
    st.lists(st.sampled_from(["a", "b", "ab", "c"]), max_size=60).map(" ".join),
    st.lists(st.sampled_from(["- a", "b...", "c.", " ", "", "d\u2028"]), max_size=20).map("\n".join),
    st.text(st.sampled_from(["x", "ж"]), min_size=300, max_size=600),
)
batches = st.lists(texts, max_size=6)


def real() -> list[str]:
    """Prose in English, code, and the names of characters of all scripts beside them."""
    code = [Path(module.__file__ or "").read_text(encoding="utf-8") for module in (textwrap, stringprep)]
    docs = [text for text in (str.__doc__, sys.__doc__, unicodedata.__doc__, print.__doc__) if text]
    scripts = [
        "\n".join(
            f"{chr(c)}{chr(c + 1)} {unicodedata.name(chr(c), 'none').title()}, {chr(c)}."
            for c in range(start, start + 150)
        )
        for start in (
            0x00A0,
            0x0391,
            0x0410,
            0x05D0,
            0x0620,
            0x0905,
            0x0E01,
            0x1E00,
            0x2010,
            0x3001,
            0x4E00,
            0xAC00,
            0x1F600,
        )
    ]
    return [*code, *docs, *scripts, "\n\n".join(docs * 3)]
