"""Python values as JSON text and back, without a number that is rounded."""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gristmill import fast_json

MAX_EXACT = 2**53
"""Whole numbers up to this are the same as a float."""
_LONG_NUMBER = re.compile(r"\d{19}")


def value_of(text: str | bytes) -> Any:
    """The value of JSON text. Whole numbers of any size are exact."""
    shown = text.decode() if isinstance(text, bytes) else text
    return json.loads(shown) if _LONG_NUMBER.search(shown) else fast_json.loads(shown)


def text_of(value: Any) -> str:
    """A value as compact JSON text. Not a number and infinite is null, dates and times are ISO 8601."""
    try:
        return fast_json.dumps(value, default=_other).decode()
    except TypeError:  # a whole number beyond 64 bits
        return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), default=_other)


def canonical(value: Any) -> Any:
    """The same value in one form: keys in order, no null members, whole numbers without a fraction.

    Arrow does not tell a null member from a missing one, or `1` from `1.0`. So text that is made of a column and text
    that was read are the same in this form.
    """
    if isinstance(value, Mapping):
        return {key: canonical(value[key]) for key in sorted(value) if value[key] is not None}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < MAX_EXACT:
        return int(value)
    return value


def plain_text(value: Any) -> str | None:
    """A value as text in a column of several kinds: strings as they are, anything else as canonical JSON."""
    if value is None or isinstance(value, str):
        return value
    return text_of(canonical(value)).removeprefix('"').removesuffix('"')


def same(said: Any, value: Any) -> bool:
    """Whether a value equals that of a line. Null and NaN are equal to a member that is missing."""
    if isinstance(said, dict) and isinstance(value, dict):
        return all(same(said.get(key), value.get(key)) for key in said.keys() | value.keys())
    if isinstance(said, list) and isinstance(value, list):
        return len(said) == len(value) and all(map(same, said, value))
    if said is None:
        return value is None or value != value
    return isinstance(said, bool) == isinstance(value, bool) and bool(said == value)


def without_fill(said: Any, value: Any) -> Any:
    """A changed value without the null members that a column has only because other documents have them.

    The members come in the order of the line.
    """
    if isinstance(said, dict) and isinstance(value, dict):
        keys = [*(key for key in said if key in value), *(key for key in value if key not in said)]
        return {key: without_fill(said.get(key), value[key]) for key in keys if value[key] is not None or key in said}
    if isinstance(said, list) and isinstance(value, list):
        known: Sequence[Any] = said + [None] * (len(value) - len(said))
        return [without_fill(a, b) for a, b in zip(known, value, strict=False)]
    return value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))) else value


def _other(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if hasattr(value, "tolist"):  # arrays and numbers of NumPy
        return value.tolist()
    return str(value)
