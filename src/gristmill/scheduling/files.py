"""Read files of users, with clear errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_json(path: str | Path, error: type[ValueError]) -> Any:
    """Return the content of a JSON file. Raise ``error`` with the reason if it cannot be read."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as reason:
        raise error(f"{path} cannot be read: {reason.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as reason:
        raise error(f"{path} is not JSON: {reason}") from None
