"""Where the report of a run is, and its format."""

from __future__ import annotations

from typing import Any

from gristmill import fast_json
from gristmill.errors import PlanError
from gristmill.storage import Folder

RECORD = "_gristmill/report.json"
PAGE = "_gristmill/report.html"
FORMAT = 1
"""Of `RECORD`. A change that readers of this format would misread gets another number."""

RUNNING, FINISHED, FAILED, INTERRUPTED = "running", "finished", "failed", "interrupted"
KILLED, UNKNOWN = "killed", "unknown"
"""States that are found out later: of a run that left a report and did not end it, and of one that left none."""

Data = dict[str, Any]
"""What `report.json` contains."""


def read_record(folder: Folder) -> Data | None:
    """Return the recorded report of a run; None if there is none. Raise `PlanError` if it cannot be used."""
    where = folder.name.rstrip("/") + "/" + RECORD
    again = "Remove it: gristmill report makes a report without it from the rest of the output."
    try:
        found = fast_json.loads(folder.read(RECORD))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except fast_json.JSONDecodeError:
        raise PlanError(f"{where} is damaged: it is not what a run wrote. {again}") from None
    except OSError as error:
        raise PlanError(f"{where} cannot be read: {error.strerror or error}.") from None
    if not isinstance(found, dict) or not isinstance(found.get("format"), int):
        raise PlanError(f"{where} is damaged: it is not what a run wrote. {again}")
    if found["format"] != FORMAT:
        raise PlanError(
            f"{where} has format {found['format']}; this version of gristmill reads format {FORMAT}. Use the version "
            f"that wrote it ({found.get('gristmill', 'unknown')})."
        )
    return found
