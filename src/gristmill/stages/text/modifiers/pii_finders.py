"""Find personal data in a text.

Each finder takes time proportional to the length of any text: patterns repeat a limited number of times, or over one
class of characters with nothing after it that could fail.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from gristmill.stages.text.modifiers.pii_numbers import IBAN_LENGTHS, is_card, is_iban, is_international

Span = tuple[int, int]
"""Where the match begins, and where it ends."""

LOCAL_PART = 64
"""The longest part before the "@", in characters (RFC 5321)."""
LOCAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-'")
UNSPACED = "\u2e80"
"""The first character of the scripts of China, Japan and Korea."""
DOMAIN = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}(?:xn--[A-Za-z0-9-]{2,59}|[A-Za-z]{2,24})"
)
_MARKS = "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff\u0e31-\u0e4e"
"""Accents and vowel signs that follow a letter. In Python they are not word characters."""


def _wide_domain(letter: str) -> re.Pattern[str]:
    """Return a pattern of domains with letters of any script. ``letter`` is a condition for each of them."""
    sign = rf"(?:{letter}[\w{_MARKS}-])"
    return re.compile(
        rf"(?:{letter}[^\W_](?:{sign}{{0,61}}(?<!-))?\.){{1,8}}{letter}[^\W\d_](?:{letter}[^\W\d_]|[{_MARKS}]){{1,23}}"
    )


WIDE_DOMAIN = _wide_domain("")
SPACED_DOMAIN = _wide_domain(rf"(?![{UNSPACED}-\U0010ffff])")
"""Domains without the scripts of China, Japan and Korea, whose words may follow an address without a space."""
_ENDINGS = "png jpg jpeg gif svg webp avif ico css js ts tsx jsx json html htm php py rb md txt pdf mp3"
FILES = frozenset(_ENDINGS.split())
"""Extensions of file names, such as logo@2x.png."""

DIGITS = frozenset("0123456789")
UNITS = frozenset(("_", "%", *"元圆円원年月日个個号號米克度岁歳回次分秒页頁"))
"""Characters that make the number before them a quantity, or a part of something longer."""
HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
NUMBERS = re.compile(r"[+(0-9][0-9 ()./\-\u00a0]{5,}")
"""Candidates for telephone numbers, cards and IPv4 addresses."""
V4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
V6 = re.compile(r":[0-9A-Fa-f:.]+")
"""An IPv6 address without its first group."""
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
    r"téléphone|telefone|móvil|celular|mobil|tlf|тел|телефон|sms)\b|☎|📞|电话|電話|手机|手機|携帯|전화|휴대폰)"
    r"[^0-9\n]{0,12}$"
)


@lru_cache(maxsize=1)
def _clusters(text: str) -> tuple[Span, ...]:
    """Return the candidates in a text. The last text is cached, since several finders search it."""
    return tuple(found.span() for found in NUMBERS.finditer(text))


def emails(text: str) -> Iterator[Span]:
    """Yield e-mail addresses, with letters of all scripts, by their "@"."""
    at = text.find("@")
    while at >= 0:
        start = _local_part(text, at)
        if start < at:
            domain = _domain(text, at + 1)
            if domain and not _is_ascii_alphanumeric(text, domain.end()) and not _is_file(domain[0]):
                yield start, domain.end()
        at = text.find("@", at + 1)


def _domain(text: str, at: int) -> re.Match[str] | None:
    """Return the domain that begins at ``at``."""
    found = DOMAIN.match(text, at)
    if text.isascii() or (found and not _continues(text, found.end())):
        return found
    if text[at : at + 1] < UNSPACED and (spaced := SPACED_DOMAIN.match(text, at)):
        return spaced
    return WIDE_DOMAIN.match(text, at)


def _continues(text: str, at: int) -> bool:
    """Return whether there is a letter of a script with spaces, or a mark on the letter before."""
    sign = text[at : at + 1]
    return "\x7f" < sign < UNSPACED and (sign.isalpha() or unicodedata.category(sign)[0] == "M")


def _local_part(text: str, at: int) -> int:
    """Return where the part before an "@" begins; ``at`` if there is none."""
    lowest = max(0, at - LOCAL_PART)
    # In scripts without spaces the word before touches an address. Its letters belong to it only next to the "@".
    limit = "\U0010ffff" if at and text[at - 1] >= UNSPACED else UNSPACED
    start = at
    while start > lowest and (
        text[start - 1] in LOCAL
        or (
            "\x7f" < text[start - 1] < limit
            and (text[start - 1].isalnum() or unicodedata.category(text[start - 1])[0] == "M")
        )
    ):
        start -= 1
    if start == lowest > 0 and text[start - 1] in LOCAL:
        return at
    while start < at and not (text[start].isalnum() or text[start] == "_"):
        start += 1
    return start


def _is_file(domain: str) -> bool:
    return domain.rpartition(".")[2].lower() in FILES


def ip_addresses(text: str, public_only: bool = False) -> Iterator[Span]:
    """Yield IPv4 and IPv6 addresses, but no version numbers and nothing with more or fewer parts."""
    if text.count(".") >= 3:
        for at, end in _clusters(text):
            for found in V4.finditer(text, at, end):
                span = found.span()
                if _stands_alone(text, *span) and _is_v4(found[0], public_only) and not _is_version(text, *span):
                    yield span
    if "::" in text or text.count(":") >= 7:
        for found in V6.finditer(text):
            # a full stop or colon of the sentence is not part of the address, but "::" is
            start = found.start()
            while start > max(0, found.start() - 4) and text[start - 1] in HEXADECIMAL:
                start -= 1
            address = text[start : found.end()].rstrip(".")
            address = address[:-1] if address.endswith(":") and not address.endswith("::") else address
            end = start + len(address)
            if _stands_alone(text, start, end) and _is_v6(address, public_only):
                yield start, end


def _is_version(text: str, start: int, end: int) -> bool:
    """Return whether four numbers are rather a version or a section, by the text before them or because they are small.

    One in 500 addresses has such small numbers, but nearly all versions have.
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
    """Return whether a text is an IPv6 address. ``a::b`` is not: it is more often a name in a program."""
    if len(text) > V6_LONGEST or len(text) - text.count(":") < 5 or not any(sign.isdigit() for sign in text):
        return False
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return address.is_global or not public_only


def cards(text: str) -> Iterator[Span]:
    """Yield numbers of payment cards, plain or in their printed groups, with a valid check digit and issuer."""
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
    """Yield IBANs in capitals, plain or with spaces, with a valid country, length and check digits."""
    for found in IBAN_START.finditer(text):
        start = found.start()
        length = IBAN_LENGTHS.get(text[start : start + 2])
        if length is None or _is_of_word(text[start - 1 : start]):
            continue
        signs, at = 0, start
        while at < len(text) and signs < length:
            if text[at].isascii() and text[at].isalnum():
                signs += 1
            elif text[at] not in " \u00a0" or text[at - 1] in " \u00a0":
                break
            at += 1
        if not _is_of_word(text[at : at + 1]) and is_iban(text[start:at].replace(" ", "").replace("\u00a0", "")):
            yield start, at


def phones(text: str) -> Iterator[Span]:
    """Yield telephone numbers.

    International numbers with an existing country code; American, French and other national numbers in their usual
    groups; any number of 7 to 15 digits after a word such as "tel" or "call".
    """
    for first, end in _clusters(text):
        at = first
        # no digit may be between the cue and the number, so only the first number can have a cue
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
"""Forms of numbers, a condition on their digits, and whether the form cannot be a row of other numbers.

The first form that fits counts.
"""


def _among_numbers(text: str, start: int, end: int) -> bool:
    """Return whether digits follow or precede after a space: then it is a row of numbers, not a telephone number."""
    return (text[start - 1 : start] == " " and text[start - 2 : start - 1] in DIGITS) or (
        text[end : end + 1] == " " and text[end + 1 : end + 2] in DIGITS
    )


def _next_number(text: str, at: int, end: int) -> int:
    """Return where the next number can begin after the group of digits, or the character, at ``at``."""
    at += 1
    while at < end and text[at - 1] in DIGITS and text[at] in DIGITS:
        at += 1
    while at < end and text[at] not in "+(0123456789":
        at += 1
    return at


def _is_number_sign(text: str, at: int) -> bool:
    """Return whether the character makes what follows a part of something longer."""
    if at < 0:
        return False
    sign = text[at]
    return _is_of_word(sign) or sign in "_+#$€£¥" or (sign in ".-/," and text[at - 1 : at].isalnum())


def _ends_there(text: str, end: int) -> bool:
    after = text[end : end + 1]
    if _is_of_word(after) or after in UNITS:
        return False
    return not (after in ("-", ".", ",", "/", ":") and text[end + 1 : end + 2].isdigit())


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Return whether the match is not part of a word, or of a number with decimals or more parts."""
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    if _is_of_word(before) or _is_of_word(after) or "_" in (before, after):
        return False
    if before in (".", ",") and text[start - 2 : start - 1].isalnum():
        return False
    return not (after in (".", ",") and text[end + 1 : end + 2].isalnum())


def _is_of_word(sign: str) -> bool:
    """Return whether a character next to a number makes it part of a word. Letters of scripts without spaces do not."""
    return sign.isalnum() and (sign < UNSPACED or sign.isdecimal())


def _is_ascii_alphanumeric(text: str, at: int) -> bool:
    sign = text[at : at + 1]
    return sign.isascii() and sign.isalnum()


def _digits(text: str) -> str:
    return "".join(sign for sign in text if sign in DIGITS)


FINDERS: dict[str, Callable[[str], Iterable[Span]]] = {
    "email": emails,
    "iban": ibans,
    "card": cards,
    "ip": ip_addresses,
    "phone": phones,
}
