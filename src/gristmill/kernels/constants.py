"""Numbers that hashes are made with, on the CPU and on a GPU alike. Another number is another hash everywhere."""

from __future__ import annotations

MASK = (1 << 64) - 1
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
STEP = 0x9E3779B97F4A7C15
"""The base of the polynomial over a shingle's characters, and what numbers that count are spread with."""
FOLD = 0xD6E8FEB86659FD93
LENGTH = 0xA0761D6478BD642F
"""Tells a text that is shorter than a shingle from the shingle that it begins."""

ROUND_BITS = 52
"""A minimum is the round that found it, above this many bits of hash: what an earlier round finds is the smaller."""
MOST_HASHES = (1 << (64 - ROUND_BITS - 1)) - 1
"""In a sketch: each takes at most two rounds, and the last number of all stands for an empty place."""

CHUNK_BYTES = 16
BLOCK_CHUNKS = 32
"""A text is hashed in blocks of this many chunks, each with keys of its own: a warp of a GPU has a thread for each."""


def mixed(value: int) -> int:
    """A number in which each bit of the given one changes each bit with a chance of one half."""
    value &= MASK
    value = ((value ^ (value >> 30)) * MIX_1) & MASK
    value = ((value ^ (value >> 27)) * MIX_2) & MASK
    return value ^ (value >> 31)


def numbers(seed: int, purpose: int, count: int) -> list[int]:
    """``count`` numbers that look random, the same for the same seed; others for another purpose."""
    start = mixed(mixed(seed + STEP) ^ (purpose * FOLD))
    return [mixed(start + (k + 1) * STEP) for k in range(count)]
