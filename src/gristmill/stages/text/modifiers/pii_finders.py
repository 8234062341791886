"""Where personal data stands in a text.

Each finder takes time in proportion to the text, whatever it says: patterns repeat within bounds, or over one class
of signs with nothing behind it to fail.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from gristmill.stages.text.modifiers.pii_numbers import IBAN_LENGTHS, is_card, is_iban, is_international

Span = tuple[int, int]
"""The place of the first sign and of the one behind the last."""

LOCAL_PART = 64
"""Signs that may stand before the "@" (RFC 5321)."""
LOCAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-'")
DOMAIN = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}(?:xn--[A-Za-z0-9-]{2,59}|[A-Za-z]{2,24})"
)
WIDE_DOMAIN = re.compile(r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}")
_ENDINGS = "png jpg jpeg gif svg webp avif ico css js ts tsx jsx json html htm php py rb md txt pdf mp3"
FILES = frozenset(_ENDINGS.split())
"""What stands behind the last dot in names of files, such as logo@2x.png."""

DIGITS = frozenset("0123456789")
HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
NUMBERS = re.compile(r"[+(0-9][0-9 ()./\-\u00a0]{5,}")
"""Where telephone numbers, cards and IPv4 addresses can be."""
V4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
V6 = re.compile(r":[0-9A-Fa-f:.]+")
"""But for the first group."""
V6_LONGEST = 45
ADDRESS = re.compile(
    r"(?i)\b(?:ip|ipv4|addr|address|addresses|host|server|dns|ping|gateway|via|route|network|subnet)\b"
)
PORT = re.compile(r":[0-9]|/[0-9]{1,2}\b")
VERSION = re.compile(r"(?i)\b(?:version|ver|release|build|firmware|driver|rev|revision|section|chapter|oid)\b[.:=# ]*$")

CARD = re.compile(
    r"[0-9]{13,19}"
    r"|[0-9]{4}([ \-\u00a0])[0-9]{4}\1[0-9]{4}\1[0-9]{4}(?:\1[0-9]{3})?"
    r"|3[0-9]{3}([ \-\u00a0])[0-9]{6}\2[0-9]{4,5}"
)
IBAN_START = re.compile(r"[A-Z]{2}[0-9]{2}(?=[ \u00a0]?[A-Z0-9]{4})")

JOINT = r"(?: ?\(|\)[ \-]?| [\-/] |[ \-./\u00a0])?"
INTERNATIONAL = re.compile(r"\+[1-9](?:" + JOINT + r"[0-9]){6,16}")
ZERO_ZERO = re.compile(r"00[ ]?[1-9][0-9]{0,2}[ \-/](?:[ \-/()]{0,2}[0-9]){6,13}")
PLUS_ONE = re.compile(r"\+1[ \-.]?(?:\([2-9][0-9]{2}\)|[2-9][0-9]{2})[ \-.]?[2-9][0-9]{2}[ \-.]?[0-9]{4}")
AMERICAN = re.compile(
    r"(?:1[ \-.])?(?:\([2-9][0-9]{2}\)[ \-]?|[2-9][0-9]{2}([\-.]))[2-9][0-9]{2}(?(1)\1|[\-. ])[0-9]{4}"
)
FRENCH = re.compile(r"0[1-9](?:([ .\-])[0-9]{2})(?:\1[0-9]{2}){3}")
TRUNK = re.compile(r"\(?0[1-9][0-9]{1,3}\)?(?:[ \-/]| - )[0-9]{3,4}[ \-]?[0-9]{3,4}")
CUED = re.compile(r"\+?\(?[0-9](?:" + JOINT + r"[0-9]){6,14}")
CUE = re.compile(
    r"(?i)(?:\b(?:tel|telephone|phone|phones|call|mobile|cell|fax|ph|whatsapp|hotline|telefon|telefono|teléfono|tél|"
    r"téléphone|telefone|móvil|celular|mobil|tlf|тел|телефон|sms)\b|☎|📞|电话|電話|전화)"
    r"[^0-9\n]{0,12}$"
)


@lru_cache(maxsize=1)
def _clusters(text: str) -> tuple[Span, ...]:
    """Of the text that was asked for last, since several finders ask for the same."""
    return tuple(found.span() for found in NUMBERS.finditer(text))


def emails(text: str) -> Iterator[Span]:
    """Addresses of electronic mail, by their "@"; letters of all scripts, where the letters beside the "@" are such."""
    at = text.find("@")
    while at >= 0:
        start = _local_part(text, at)
        if start < at:
            after = text[at + 1 : at + 2]
            domain = (DOMAIN if after.isascii() else WIDE_DOMAIN).match(text, at + 1)
            if domain and not _is_ascii_alphanumeric(text, domain.end()) and not _is_file(domain[0]):
                yield start, domain.end()
        at = text.find("@", at + 1)


def _local_part(text: str, at: int) -> int:
    """Where the part before an "@" begins; ``at`` if there is none."""
    lowest = max(0, at - LOCAL_PART)
    wide = at > 0 and not text[at - 1].isascii()
    start = at
    while start > lowest and (text[start - 1] in LOCAL or (wide and text[start - 1].isalnum())):
        start -= 1
    if start == lowest > 0 and (text[start - 1] in LOCAL):
        return at
    while start < at and not (text[start].isalnum() or text[start] == "_"):
        start += 1
    return start


def _is_file(domain: str) -> bool:
    return domain.rpartition(".")[2].lower() in FILES


def ip_addresses(text: str, public_only: bool = False) -> Iterator[Span]:
    """IPv4 and IPv6 addresses. Version numbers and what has more or fewer parts are none."""
    if text.count(".") >= 3:
        for at, end in _clusters(text):
            for found in V4.finditer(text, at, end):
                span = found.span()
                if _stands_alone(text, *span) and _is_v4(found[0], public_only) and not _is_version(text, *span):
                    yield span
    if "::" in text or text.count(":") >= 7:
        for found in V6.finditer(text):
            # a full stop or colon of the sentence is not of the address, but "::" is
            start = found.start()
            while start > max(0, found.start() - 4) and text[start - 1] in HEXADECIMAL:
                start -= 1
            address = text[start : found.end()].rstrip(".")
            address = address[:-1] if address.endswith(":") and not address.endswith("::") else address
            end = start + len(address)
            if _stands_alone(text, start, end) and _is_v6(address, public_only):
                yield start, end


def _is_version(text: str, start: int, end: int) -> bool:
    """Whether four numbers are rather a version or a section, by what stands before them or because they are small.

    Of addresses one in 500 has such small numbers; of versions nearly all have.
    """
    before = text[max(0, start - 40) : start]
    if VERSION.search(before) or (before[-1:] == "-" and before[-2:-1].isalpha()):
        return True
    parts = [int(part) for part in text[start:end].split(".")]
    if parts[0] >= 10 or max(parts) >= 100 or len(set(parts)) == 1:
        return False
    return not (ADDRESS.search(before) or PORT.match(text, end))


def _is_v4(text: str, public_only: bool) -> bool:
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return address.is_global or not public_only


def _is_v6(text: str, public_only: bool) -> bool:
    """Among others not ``a::b``, which is more often a name in a program."""
    if len(text) > V6_LONGEST or len(text) - text.count(":") < 5 or not any(sign.isdigit() for sign in text):
        return False
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return address.is_global or not public_only


def cards(text: str) -> Iterator[Span]:
    """Numbers of payment cards: plain, or in the groups in which they are printed; check digit and issuer fit."""
    for at, end in _clusters(text):
        if end - at < 13:
            continue
        while found := CARD.search(text, at, end):
            start, stop = found.span()
            if _stands_alone(text, start, stop) and is_card(_digits(found[0])):
                yield start, stop
                at = stop
            else:
                at = _next_number(text, start, end)


def ibans(text: str) -> Iterator[Span]:
    """International bank account numbers in capitals, plain or with spaces; country, length and check digits fit."""
    for found in IBAN_START.finditer(text):
        start = found.start()
        length = IBAN_LENGTHS.get(text[start : start + 2])
        if length is None or text[start - 1 : start].isalnum():
            continue
        signs, at = 0, start
        while at < len(text) and signs < length:
            if text[at].isascii() and text[at].isalnum():
                signs += 1
            elif text[at] not in " \u00a0" or text[at - 1] in " \u00a0":
                break
            at += 1
        if not text[at : at + 1].isalnum() and is_iban(text[start:at].replace(" ", "").replace("\u00a0", "")):
            yield start, at


def phones(text: str) -> Iterator[Span]:
    """Telephone numbers.

    International ones with a country code that exists; American, French and other national ones in groups as they
    are usually written; anything of 7 to 15 digits behind a word such as "tel" or "call".
    """
    for first, end in _clusters(text):
        at = first
        # no digit may stand between the cue and the number: only the first of them can have one
        cued = CUE.search(text, max(0, at - 30), at) is not None
        while at < end - 6:
            span = _phone_at(text, at, end, cued and at == first)
            if span is None:
                at = _next_number(text, at, end)
            else:
                yield span
                at = span[1]


def _phone_at(text: str, at: int, end: int, cued: bool) -> Span | None:
    if text[at] not in "+(0123456789" or _is_number_sign(text, at - 1):
        return None
    for pattern, fits, sure in PHONE_FORMS:
        found = pattern.match(text, at, end)
        if not found or not _ends_there(text, found.end()) or not fits(_digits(found[0])):
            continue
        if sure or cued or not _among_numbers(text, *found.span()):
            return found.span()
    if cued:
        found = CUED.match(text, at, end)
        if found and _ends_there(text, found.end()):
            return found.span()
    return None


PHONE_FORMS: tuple[tuple[re.Pattern[str], Callable[[str], bool], bool], ...] = (
    (PLUS_ONE, bool, True),
    (INTERNATIONAL, lambda digits: digits[0] != "1" and is_international(digits), True),
    (AMERICAN, bool, True),
    (FRENCH, bool, False),
    (ZERO_ZERO, lambda digits: is_international(digits[2:]), False),
    (TRUNK, lambda digits: 9 <= len(digits) <= 11, False),
)
"""How numbers are written, what their digits must be, and whether that tells them from a row of other numbers.

The first that fits counts.
"""


def _among_numbers(text: str, start: int, end: int) -> bool:
    """Whether more digits follow or precede after a space: a row of numbers, rather than one that one dials."""
    return (text[start - 1 : start] == " " and text[start - 2 : start - 1] in DIGITS) or (
        text[end : end + 1] == " " and text[end + 1 : end + 2] in DIGITS
    )


def _next_number(text: str, at: int, end: int) -> int:
    """Where the next number can begin, behind the group of digits or the sign at ``at``."""
    at += 1
    while at < end and text[at - 1] in DIGITS and text[at] in DIGITS:
        at += 1
    while at < end and text[at] not in "+(0123456789":
        at += 1
    return at


def _is_number_sign(text: str, at: int) -> bool:
    """Whether what stands there makes what follows a part of something longer."""
    if at < 0:
        return False
    sign = text[at]
    return sign.isalnum() or sign in "_+#$€£¥" or (sign in ".-/," and text[at - 1 : at].isalnum())


def _ends_there(text: str, end: int) -> bool:
    after = text[end : end + 1]
    if after.isalnum() or after in ("_", "%"):
        return False
    return not (after in ("-", ".", ",", "/", ":") and text[end + 1 : end + 2].isdigit())


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether what is there is not a part of a word, or of a number with decimals or more parts."""
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    if before.isalnum() or after.isalnum() or "_" in (before, after):
        return False
    if before in (".", ",") and text[start - 2 : start - 1].isalnum():
        return False
    return not (after in (".", ",") and text[end + 1 : end + 2].isalnum())


def _is_ascii_alphanumeric(text: str, at: int) -> bool:
    sign = text[at : at + 1]
    return sign.isascii() and sign.isalnum()


def _digits(text: str) -> str:
    return "".join(sign for sign in text if sign in DIGITS)
