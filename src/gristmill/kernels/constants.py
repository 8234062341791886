"""Numbers of hash functions on the CPU and on a GPU. Another number changes all hashes."""

from __future__ import annotations

MASK = (1 << 64) - 1
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
STEP = 0x9E3779B97F4A7C15
"""The base of the polynomial over a shingle's characters. It also spreads consecutive numbers."""
FOLD = 0xD6E8FEB86659FD93
LENGTH = 0xA0761D6478BD642F
"""Distinguishes a text that is shorter than a shingle from a shingle with the same beginning."""

ROUND_BITS = 52
"""A minimum is the round that found it, above this many bits of hash: minima of earlier rounds are smaller."""
MOST_HASHES = (1 << (64 - ROUND_BITS - 1)) - 1
"""The most minima in a sketch: each takes at most two rounds, and the highest number means an empty place."""

CHUNK_BYTES = 16
BLOCK_CHUNKS = 32
"""Chunks in a block, each with its own keys: a warp of a GPU has a thread for each."""


def mixed(value: int) -> int:
    """Return a number in which each input bit changes each output bit with a probability of one half."""
    value &= MASK
    value = ((value ^ (value >> 30)) * MIX_1) & MASK
    value = ((value ^ (value >> 27)) * MIX_2) & MASK
    return value ^ (value >> 31)


def numbers(seed: int, purpose: int, count: int) -> list[int]:
    """Return ``count`` pseudorandom numbers: the same for the same seed and purpose."""
    start = mixed(mixed(seed + STEP) ^ (purpose * FOLD))
    return [mixed(start + (k + 1) * STEP) for k in range(count)]
