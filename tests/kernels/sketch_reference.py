"""Shingles, sets and pieces in plain Python, slowly."""

from __future__ import annotations

from gristmill.kernels.constants import FOLD, LENGTH, MASK, STEP, mixed, numbers
from gristmill.kernels.signatures import KEYS, SHINGLES
from gristmill.kernels.texts import Texts


def shingles(text: str, ngrams: int, unit: str, seed: int = 0) -> list[int]:
    """The hashes of all shingles, in the order of the text."""
    units = [ord(char) for char in text] if unit == "char" else [int(h) for h in Texts.of([text]).words.hashes]
    salt = numbers(seed, SHINGLES, 1)[0]

    def polynomial(window: list[int]) -> int:
        h = 0
        for value in window:
            h = (h * STEP + value) & MASK
        return h

    if len(units) < ngrams:
        return [mixed((polynomial(units) + (len(units) + 1) * LENGTH & MASK) ^ salt)]
    return [mixed(polynomial(units[k : k + ngrams]) ^ salt) for k in range(len(units) - ngrams + 1)]


def windows(text: str, ngrams: int, unit: str) -> set[object]:
    """The values that shingles are hashes of."""
    units = list(text) if unit == "char" else text.split()
    if len(units) < ngrams:
        return {("short", *units)}
    return {tuple(units[k : k + ngrams]) for k in range(len(units) - ngrams + 1)}


def jaccard(left: set[object], right: set[object]) -> float:
    return len(left & right) / len(left | right)


def fast_minima(values: list[int], places: int, salts: list[int], round_bits: int = 52) -> list[int]:
    """Fast similarity sketching as it is written down: round after round, until no place is empty."""
    minima: list[int | None] = [None] * places
    for round_ in range(2 * places):
        for value in values:
            if round_:
                value = ((value ^ salts[round_]) * 0xBF58476D1CE4E5B9) & MASK
                value = ((value ^ (value >> 32)) * 0x94D049BB133111EB) & MASK
            place = ((value >> 32) * places) >> 32 if round_ < places else round_ - places
            found = round_ << round_bits | value & ((1 << round_bits) - 1)
            there = minima[place]
            minima[place] = found if there is None else min(there, found)
        if None not in minima:
            break
    return [one for one in minima if one is not None]


def pieces(text: str, unit: str) -> list[tuple[str, int, int]]:
    """The bytes that are hashed of each piece, and where in the text's bytes the piece begins and ends."""
    found = []
    at = 0
    parts: list[tuple[str, int]] = []
    for line in text.split("\n"):
        parts.append((line, at))
        at += len(line.encode()) + 1
    group: list[tuple[str, int]] = []
    for line, begin in [*parts, ("", at)]:
        if line.strip():
            group.append((line, begin))
        if group and (not line.strip() or unit == "line"):
            whole = "\n".join(part for part, _ in group)
            found.append((whole.strip(), group[0][1], group[0][1] + len(whole.encode())))
            group = []
    return found


def band_hashes(minima: list[int], rows: int) -> list[int]:
    found = []
    for band in range(len(minima) // rows):
        h = mixed((band + 1) * STEP)
        for value in minima[band * rows : (band + 1) * rows]:
            h = ((h ^ value) * FOLD) & MASK
            h ^= h >> 29
        found.append(mixed(h))
    return found


def exact_hash(data: bytes, seed: int) -> list[int]:
    """The two halves of a text's hash, from blocks of 32 chunks of 16 bytes."""
    keys = numbers(seed, KEYS, 130)

    def folded(left: int, right: int) -> int:
        product = left * right
        return (product >> 64) ^ (product & MASK)

    totals = [0, 0]
    for number, block in enumerate((data[k : k + 512] for k in range(0, len(data), 512)), 1):
        sums = [0, 0]
        for place, chunk in enumerate(block[k : k + 16] for k in range(0, len(block), 16)):
            left, right = int.from_bytes(chunk[:8], "little"), int.from_bytes(chunk[8:], "little")
            for half in (0, 1):
                a, b = keys[4 * place + 2 * half : 4 * place + 2 * half + 2]
                sums[half] += folded(left ^ a, right ^ b)
        totals[0] += mixed(sums[0] + number * STEP)
        totals[1] += mixed((sums[1] & MASK) ^ (number * FOLD & MASK))
    first = mixed((totals[0] & MASK) ^ (len(data) * LENGTH & MASK) ^ keys[128])
    return [first, mixed(totals[1] + (first ^ keys[129]))]
