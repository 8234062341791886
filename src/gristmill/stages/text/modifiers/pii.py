"""Remove personal data from texts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier

ENTITIES = ("email", "iban", "card", "ip", "phone")
"""Kinds of personal data. If two overlap, the first in this order counts."""


@builtin
class PiiRedactor(DocumentModifier):
    """Removes e-mail and IP addresses, telephone and card numbers and IBANs from texts, and counts them.

    - ``entities``: which of "email", "ip", "phone", "card", "iban".
    - ``mode``: "replace" inserts ``replacement``; "mask" inserts ``mask_character`` for each letter and digit, so the
      text keeps its length.
    - ``replacement``: a text in which ENTITY stands for the entity's name in capitals, or a mapping with a text for
      each entity.
    - ``public_ips_only``: keep addresses of private networks, such as 127.0.0.1 and 192.168.0.1.

    Only certain matches count: cards and IBANs by their check digits, issuer and country; IP addresses by range, not
    version numbers; telephone numbers by a country code, by national grouping, or after a word such as "tel". Digits
    are 0 to 9, IBANs are in capitals. Personal data can remain: names, streets and numbers in unusual forms are kept.
    """

    def __init__(
        self,
        entities: Sequence[str] = ("email", "ip", "phone", "card", "iban"),
        mode: Literal["replace", "mask"] = "replace",
        replacement: str | Mapping[str, str] = "{{ENTITY}}",
        mask_character: str = "*",
        public_ips_only: bool = False,
    ) -> None:
        entities = [entities] if isinstance(entities, str) else list(entities)
        unknown = [name for name in entities if name not in ENTITIES]
        if unknown or not entities:
            wrong = ", ".join(map(repr, unknown)) or "nothing"
            raise ValueError(f"PiiRedactor: entities may be {', '.join(map(repr, ENTITIES))}, not {wrong}.")
        if mode not in ("replace", "mask"):
            raise ValueError(f"PiiRedactor: mode must be 'replace' or 'mask', not {mode!r}.")
        if len(mask_character) != 1:
            raise ValueError(f"PiiRedactor: mask_character must be one character, not {mask_character!r}.")
        if isinstance(replacement, Mapping) and (missing := [e for e in entities if e not in replacement]):
            raise ValueError(f"PiiRedactor: replacement has no text for {', '.join(map(repr, missing))}.")
        self.entities = [name for name in ENTITIES if name in entities]
        self.mode = mode
        self.mask_character = mask_character
        self.replacements = {
            name: replacement.replace("ENTITY", name.upper()) if isinstance(replacement, str) else replacement[name]
            for name in self.entities
        }
        self.public_ips_only = public_ips_only

    def candidates(self, texts: Texts) -> Array:
        return candidates(texts, self.entities)

    def find(self, text: str, entities: Sequence[str] | None = None) -> list[tuple[int, int, str]]:
        """Return what is found, from left to right and without overlaps: begin, end and entity."""
        from gristmill.stages.text.modifiers.pii_finders import FINDERS, ip_addresses  # compiles many patterns

        taken: list[tuple[int, int, str]] = []
        for name in self.entities if entities is None else entities:
            finder = FINDERS[name]
            if name == "ip" and self.public_ips_only:
                finder = partial(ip_addresses, public_only=True)
            for start, end in finder(text):
                at = bisect_left(taken, (start, end, name))
                if (at and taken[at - 1][1] > start) or (at < len(taken) and taken[at][0] < end):
                    continue
                taken.insert(at, (start, end, name))
        return taken

    def modify_document(self, text: str) -> str:
        return self._without(text, self.find(text))

    def modify_batch(self, texts: Sequence[str]) -> list[str]:
        raw = Texts.of(texts)
        possible = {name: candidates(raw, [name]).tolist() for name in self.entities}
        return [
            self._without(text, self.find(text, [name for name in self.entities if possible[name][i]]))
            for i, text in enumerate(texts)
        ]

    def _without(self, text: str, found: list[tuple[int, int, str]]) -> str:
        if not found:
            return text
        parts = []
        done = 0
        for start, end, name in found:
            parts += [text[done:start], self._instead(text[start:end], name)]
            done = end
            self.count(f"redacted {name}")
        return "".join([*parts, text[done:]])

    def _instead(self, what: str, name: str) -> str:
        if self.mode == "replace":
            return self.replacements[name]
        return "".join(self.mask_character if sign.isalnum() else sign for sign in what)


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
