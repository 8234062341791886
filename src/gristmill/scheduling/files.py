"""Reading what a user wrote, with errors for the person who reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_json(path: str | Path, error: type[ValueError]) -> Any:
    """The content of a JSON file; ``error`` is raised, with the reason, if there is none."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as reason:
        raise error(f"{path} cannot be read: {reason.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as reason:
        raise error(f"{path} is not JSON: {reason}") from None
