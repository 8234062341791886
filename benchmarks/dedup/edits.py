"""The ways in which a document becomes a near-duplicate."""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Sequence

SENTENCE = re.compile(r"(?<=[.?!])\s+")


def words(text: str, share: float, others: Sequence[str], rng: random.Random) -> str:
    """A share of the words replaced (three of five), left out, or followed by another."""
    parts = re.split(r"(\s+)", text)
    for i in range(0, len(parts), 2):
        if parts[i] and rng.random() < share:
            what = rng.random()
            if what < 0.6:
                parts[i] = rng.choice(others)
            else:
                parts[i] = "" if what < 0.8 else f"{parts[i]} {rng.choice(others)}"
    return "".join(parts)


def characters(text: str, share: float, others: Sequence[str], rng: random.Random) -> str:
    """For texts without spaces: a word put in place of so many of their characters."""
    chars = list(text)
    for _ in range(max(1, round(len(chars) * share / 2))):
        at = rng.randrange(len(chars))
        chars[at : at + 2] = [rng.choice(others)]
    return "".join(chars)


def sentences_inserted(text: str, every: int, others: Sequence[str], rng: random.Random) -> str:
    """A foreign sentence after one of ``every`` sentences."""
    paragraphs = text.split("\n\n")
    changed = []
    for paragraph in paragraphs:
        edited = [
            f"{sentence} {rng.choice(others)}" if rng.random() < 1 / every else sentence
            for sentence in SENTENCE.split(paragraph)
        ]
        changed.append(" ".join(edited))
    return "\n\n".join(changed)


def kept(text: str, share: float) -> str:
    """The beginning of a text, so much of its words."""
    parts = re.split(r"(\s+)", text)
    return "".join(parts[: 2 * max(1, round((len(parts) + 1) // 2 * share)) - 1])


def wrapped(text: str, header: str, footer: str) -> str:
    return f"{header}\n\n{text}\n\n{footer}"


def shuffled(text: str, rng: random.Random) -> str:
    """The paragraphs in another order."""
    paragraphs = text.split("\n\n")
    order = paragraphs[:]
    while len(set(paragraphs)) > 1 and order == paragraphs:
        rng.shuffle(order)
    return "\n\n".join(order)


def in_lower_case(text: str) -> str:
    return text.lower()


def with_loud_sentences(text: str, rng: random.Random) -> str:
    """One of five sentences in upper case."""
    return "\n\n".join(
        " ".join(s.upper() if rng.random() < 0.2 else s for s in SENTENCE.split(paragraph))
        for paragraph in text.split("\n\n")
    )


def rewrapped(text: str, width: int) -> str:
    """Lines broken at a width, as in mails and plain-text files."""
    return "\n\n".join(textwrap.fill(paragraph, width) for paragraph in text.split("\n\n"))


def spaced_out(text: str, rng: random.Random) -> str:
    """Two spaces behind one word of ten, a tab or a space at the ends of paragraphs."""
    paragraphs = ["".join(part + " " if part == " " and rng.random() < 0.1 else part for part in re.split(r"( )", p))
                  for p in text.split("\n\n")]  # fmt: skip
    return " \n\n\t".join(paragraphs)
