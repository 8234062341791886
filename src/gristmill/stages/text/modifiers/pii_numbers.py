"""Check digits and number plans of cards, IBANs and telephone numbers."""

from __future__ import annotations

IBAN_LENGTHS = {
    **{"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29},
    **{"BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29},
    **{"ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28},
    **{"HN": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20},
    **{"LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19},
    **{"MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29},
    **{"PT": 25, "QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24},
    **{"SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20},
    "YE": 30,
}
"""Characters of an IBAN by country, from the registry of ISO 13616."""

CARD_RANGES = (
    ("4", "4", (13, 16, 19)),
    ("51", "55", (16,)),
    ("2221", "2720", (16,)),
    ("34", "34", (15,)),
    ("37", "37", (15,)),
    ("300", "305", (14,)),
    ("36", "36", (14,)),
    ("38", "39", (14,)),
    ("6011", "6011", (16, 19)),
    ("644", "649", (16, 19)),
    ("65", "65", (16, 19)),
    ("3528", "3589", (16, 17, 18, 19)),
    ("62", "62", (16, 17, 18, 19)),
    ("5018", "5018", (16, 18, 19)),
    ("5020", "5020", (16, 18, 19)),
    ("5038", "5038", (16, 18, 19)),
    ("6304", "6304", (16, 18, 19)),
    ("6759", "6763", (16, 18, 19)),
)
"""First digits (from, to) of issuers' numbers and how many digits they have."""

_CODES = (
    "1 7 20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 62 63 64 65 66 81 82 84 "
    "86 90 91 92 93 94 95 98 211 212 213 216 218 220 221 222 223 224 225 226 227 228 229 230 231 232 233 234 235 236 "
    "237 238 239 240 241 242 243 244 245 246 247 248 249 250 251 252 253 254 255 256 257 258 260 261 262 263 264 265 "
    "266 267 268 269 290 291 297 298 299 350 351 352 353 354 355 356 357 358 359 370 371 372 373 374 375 376 377 378 "
    "380 381 382 383 385 386 387 389 420 421 423 500 501 502 503 504 505 506 507 508 509 590 591 592 593 594 595 596 "
    "597 598 599 670 672 673 674 675 676 677 678 679 680 681 682 683 685 686 687 688 689 690 691 692 800 808 850 852 "
    "853 855 856 870 878 880 881 882 883 886 888 960 961 962 963 964 965 966 967 968 970 971 972 973 974 975 976 977 "
    "979 992 993 994 995 996 998"
)
CALLING_CODES = frozenset(_CODES.split())
"""Country codes of E.164. None is the beginning of another."""


def luhn(digits: str) -> bool:
    """Return whether the last digit is the check digit of the others (ISO/IEC 7812)."""
    total = 0
    for i, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + i % 2)
        total += value - 9 if value > 9 else value
    return bool(digits) and total % 10 == 0


def is_card(digits: str) -> bool:
    """Return whether the first digits and the length are those of an issuer, and the check digit is right."""
    for first, last, lengths in CARD_RANGES:
        if len(digits) in lengths and first <= digits[: len(first)] <= last:
            return luhn(digits)
    return False


def is_iban(text: str) -> bool:
    """Return whether a text without spaces has its country's length and the right check digits (ISO 13616, mod 97)."""
    if IBAN_LENGTHS.get(text[:2]) != len(text) or not (text.isascii() and text.isalnum() and text.isupper()):
        return False
    return text[2:4].isdigit() and int("".join(str(int(sign, 36)) for sign in text[4:] + text[:4])) % 97 == 1


def is_international(digits: str) -> bool:
    """Return whether digits, with the country code and without "+", can be a telephone number of E.164."""
    return 8 <= len(digits) <= 15 and any(digits[:n] in CALLING_CODES for n in (1, 2, 3))
