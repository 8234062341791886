"""Random numbers that are the same on every machine, drawn from integer keys by plain IEEE arithmetic.

A draw depends on its key alone, not on earlier draws, so a task takes the same time whichever worker runs it and
whenever. The ``log`` and ``exp`` of the standard library are not used: they differ in the last bit between systems.
"""

from __future__ import annotations

import math

_MASK = (1 << 64) - 1
_LN2 = 0.6931471805599453


def mix(key: int, more: int) -> int:
    """Return a new key of 64 bits from a key and a number."""
    z = (key ^ (more * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15)) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def uniform(key: int) -> float:
    """Return a number from 0 to below 1."""
    return (mix(key, 1) >> 11) * 2.0**-53


def lognormal(key: int, cv: float) -> float:
    """Return a factor of mean 1 and this coefficient of variation."""
    if cv <= 0:
        return 1.0
    variance = ln(1.0 + cv * cv)
    return exp(math.sqrt(variance) * normal(key) - variance / 2)


def normal(key: int) -> float:
    """Return a standard normal number, by the polar method."""
    while True:
        key = mix(key, 2)
        x = 2.0 * ((key >> 11) * 2.0**-53) - 1.0
        key = mix(key, 3)
        y = 2.0 * ((key >> 11) * 2.0**-53) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            return x * math.sqrt(-2.0 * ln(square) / square)


def ln(x: float) -> float:
    mantissa, exponent = math.frexp(x)
    if mantissa < 0.7071067811865476:
        mantissa *= 2.0
        exponent -= 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = 0.0
    for n in range(23, 0, -2):
        series = series * square + 1.0 / n
    return 2.0 * s * series + exponent * _LN2


def exp(x: float) -> float:
    twos = math.floor(x / _LN2 + 0.5)
    rest = x - twos * _LN2
    series = 1.0
    for n in range(16, 0, -1):
        series = 1.0 + rest * series / n
    return math.ldexp(series, twos)
