"""Find the texts that may contain personal data by their bytes, many texts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np

CHUNK_BYTES = 1 << 18
"""Array that are searched together: few enough to stay in the processor's cache."""
NUMBER_DIGITS, NUMBER_BYTES = 7, 32
"""Any telephone or card number has at least 7 digits in its first 32 bytes."""
QUAD_BYTES = 8
"""The greatest distance from the first dot of an IPv4 address to the third."""
GROUPS_BYTES = 35
"""The greatest distance from the first colon of a full IPv6 address to the seventh."""


def candidates(texts: Texts, entities: Iterable[str]) -> Array:
    """Return True for each text that may contain one of the entities. No text that contains one gets False."""
    signs = list(dict.fromkeys(SIGNS[name] for name in entities))
    found = np.zeros(len(texts), dtype=bool)
    first = 0
    while first < len(texts):
        start = texts.starts[first]
        last = max(int(np.searchsorted(texts.ends, start + CHUNK_BYTES, side="right")), first + 1)
        data = texts.data[start : texts.ends[last - 1]]
        for sign in signs:
            places = sign(data) + start
            rows = np.searchsorted(texts.starts[first:last], places, side="right") - 1 + first
            found[rows[places < texts.ends[rows]]] = True
        first = last
    return found


def _digits(data: Array) -> Array:
    is_digit: Array = (data - np.uint8(ord("0"))) < 10
    return is_digit


def _at_sign(data: Array) -> Array:
    return np.flatnonzero(data == ord("@"))


def _iban(data: Array) -> Array:
    digits = _digits(data)
    capitals = (data - np.uint8(ord("A"))) < 26
    return np.flatnonzero(capitals[:-3] & capitals[1:-2] & digits[2:-1] & digits[3:])


def _number(data: Array) -> Array:
    places = np.flatnonzero(_digits(data))
    return _dense(places, NUMBER_DIGITS, NUMBER_BYTES)


def _address(data: Array) -> Array:
    digits = _digits(data)
    dots = np.flatnonzero((data[1:-1] == ord(".")) & digits[:-2] & digits[2:]) + 1
    colons = np.flatnonzero(data == ord(":"))
    return np.concatenate([_dense(dots, 3, QUAD_BYTES + 1), _dense(colons, 2, 2), _dense(colons, 7, GROUPS_BYTES)])


def _dense(places: Array, number: int, within: int) -> Array:
    """Return the places that begin a group of ``number`` places ``within`` so many bytes."""
    if len(places) < number:
        return places[:0]
    return places[: len(places) - number + 1][places[number - 1 :] - places[: len(places) - number + 1] < within]


SIGNS: dict[str, Callable[[Array], Array]] = {
    "email": _at_sign,
    "iban": _iban,
    "card": _number,
    "ip": _address,
    "phone": _number,
}
