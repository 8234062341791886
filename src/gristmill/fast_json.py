"""JSON by orjson, or by the standard library if orjson is not installed: the same, only slower.

Reading refuses what is not JSON: NaN, infinite numbers, half of a surrogate pair, bytes that are not UTF-8.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

try:
    from orjson import OPT_INDENT_2, JSONDecodeError, dumps, loads
except ImportError:
    OPT_INDENT_2 = 1
    JSONDecodeError = json.JSONDecodeError  # type: ignore[misc, assignment]  # orjson's is a kind of it

    def loads(text: bytes | bytearray | memoryview | str, /) -> Any:
        if not isinstance(text, str):
            try:
                text = bytes(text).decode("utf-8")
            except UnicodeDecodeError as error:
                raise JSONDecodeError("str is not valid UTF-8", "", error.start) from None
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
        if "\\ud" in text or "\\uD" in text:
            try:
                json.dumps(value, ensure_ascii=False).encode("utf-8")
            except UnicodeEncodeError:
                raise JSONDecodeError("lone surrogate", text, 0) from None
        return value

    def dumps(value: Any, /, default: Callable[[Any], Any] | None = None, option: int | None = None) -> bytes:
        layout: dict[str, Any] = {"indent": 2} if option == OPT_INDENT_2 else {"separators": (",", ":")}
        return json.dumps(_plain(value), ensure_ascii=False, default=default, **layout).encode("utf-8")

    def _refuse(name: str) -> Any:
        raise JSONDecodeError(f"{name} is not JSON", name, 0)

    def _finite(text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise JSONDecodeError("number out of range", text, 0)
        return number

    def _plain(value: Any) -> Any:
        """Return a value with None for NaN and infinity, as orjson writes them."""
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, dict):
            return {key: _plain(x) for key, x in value.items()}
        return [_plain(x) for x in value] if isinstance(value, list | tuple) else value


__all__ = ["OPT_INDENT_2", "JSONDecodeError", "dumps", "loads"]
