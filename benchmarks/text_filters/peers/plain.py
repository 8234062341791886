"""The job in plain Python, as one writes it by hand with care: a process for each core, orjson, words split once.

plain.py SOURCE OUT WORKERS
"""

import re
from collections import Counter

import orjson
from by_file import main

STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}
BULLETS = tuple("•‣▶◀◦■□▪▫–-*")
ELLIPSES = ("...", "…")
LETTER = re.compile("[a-zA-Z]")
BLANK_LINES = re.compile(r"\n{2,}")
TOP = ((2, 0.2), (3, 0.18), (4, 0.16))
DUPLICATE = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))


def keep(text: str) -> bool:
    words = text.split()
    n = len(words)
    if not 50 <= n <= 100_000:
        return False
    if not 3 <= sum(map(len, words)) / n <= 10:
        return False
    if max(text.count("#"), text.count("...") + text.count("…")) / n > 0.1:
        return False
    lines = [line for line in text.split("\n") if line]
    if sum(line.lstrip().startswith(BULLETS) for line in lines) / len(lines) > 0.9:
        return False
    if sum(line.rstrip().endswith(ELLIPSES) for line in lines) / len(lines) > 0.3:
        return False
    if sum(1 for word in words if LETTER.search(word)) / n < 0.8:
        return False
    if len(STOP_WORDS.intersection(words)) < 2:
        return False
    paragraphs = [paragraph for paragraph in BLANK_LINES.split(text) if paragraph]
    for parts in (lines, paragraphs):
        unique = set(parts)
        if len(unique) / len(parts) < 0.7 or sum(map(len, unique)) / sum(map(len, parts)) < 0.8:
            return False
    return not repeats(text, words)


def repeats(text: str, words: list[str]) -> bool:
    for n, most in TOP:
        gram, count = Counter(grams(words, n)).most_common(1)[0]
        if count > 1:
            string = " ".join(gram)
            if text.count(string) * len(string) / len(text) > most:
                return True
    return any(duplicate_characters(words, n) / len(text) > most for n, most in DUPLICATE)


def grams(words: list[str], n: int) -> "zip[tuple[str, ...]]":
    return zip(*(words[i:] for i in range(n)), strict=False)


def duplicate_characters(words: list[str], n: int) -> int:
    """Characters in n-grams that were seen before, each counted once, with the spaces between words."""
    seen = set()
    characters = covered = 0
    for gram in grams(words, n):
        if gram in seen:
            characters += sum(map(len, gram[covered:])) + min(n - covered, n - 1)
            covered = n
        else:
            seen.add(gram)
        if covered:
            covered -= 1
    return characters


def one_file(names: tuple[str, str]) -> int:
    kept = 0
    with open(names[0], "rb") as source, open(names[1], "wb") as out:
        for line in source:
            if keep(orjson.loads(line)["text"]):
                out.write(line)
                kept += 1
    return kept


if __name__ == "__main__":
    main(one_file)
