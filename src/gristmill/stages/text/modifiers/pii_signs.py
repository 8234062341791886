"""Which texts can hold personal data at all: a look at bytes, many texts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from gristmill.lazy import Array, np

if TYPE_CHECKING:
    from gristmill.kernels.texts import Texts

Bytes: TypeAlias = "Array"

CHUNK_BYTES = 1 << 18
"""Looked at together: little enough to stay in the processor's cache."""
NUMBER_DIGITS, NUMBER_BYTES = 7, 32
"""So many digits are in the first so many bytes of any telephone or card number, whatever stands between them."""
QUAD_BYTES = 8
"""The third dot of an IPv4 address is at most so far behind the first."""
GROUPS_BYTES = 35
"""The seventh colon of an IPv6 address that is written in full is at most so far behind the first."""


def candidates(texts: Texts, entities: Iterable[str]) -> Bytes:
    """True for each text in which any of the entities can be; no text that has one is left out."""
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


def _digits(data: Bytes) -> Bytes:
    is_digit: Bytes = (data - np.uint8(ord("0"))) < 10
    return is_digit


def _at_sign(data: Bytes) -> Bytes:
    return np.flatnonzero(data == ord("@"))


def _iban(data: Bytes) -> Bytes:
    digits = _digits(data)
    capitals = (data - np.uint8(ord("A"))) < 26
    return np.flatnonzero(capitals[:-3] & capitals[1:-2] & digits[2:-1] & digits[3:])


def _number(data: Bytes) -> Bytes:
    places = np.flatnonzero(_digits(data))
    return _dense(places, NUMBER_DIGITS, NUMBER_BYTES)


def _address(data: Bytes) -> Bytes:
    digits = _digits(data)
    dots = np.flatnonzero((data[1:-1] == ord(".")) & digits[:-2] & digits[2:]) + 1
    colons = np.flatnonzero(data == ord(":"))
    return np.concatenate([_dense(dots, 3, QUAD_BYTES + 1), _dense(colons, 2, 2), _dense(colons, 7, GROUPS_BYTES)])


def _dense(places: Bytes, number: int, within: int) -> Bytes:
    """Places, in order, from which on there are ``number`` of them ``within`` so many bytes."""
    if len(places) < number:
        return places[:0]
    return places[: len(places) - number + 1][places[number - 1 :] - places[: len(places) - number + 1] < within]


SIGNS: dict[str, Callable[[Bytes], Bytes]] = {
    "email": _at_sign,
    "iban": _iban,
    "card": _number,
    "ip": _address,
    "phone": _number,
}
