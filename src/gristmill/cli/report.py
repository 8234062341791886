"""``gristmill report`` and ``gristmill diff``: the report of a run, and two runs compared."""

from __future__ import annotations

import os
from pathlib import Path

from gristmill.cli.target import UsageError
from gristmill.errors import PipelineError, PlanError
from gristmill.pipeline.text_layout import near_path
from gristmill.report.place import KILLED, PAGE, RUNNING, Data
from gristmill.storage import Folder, plain_errors


def report(output: str, file: str | None, opens: bool) -> list[str]:
    """Make the report of a run again and write it. Return the lines to print."""
    from gristmill.report.build import rebuilt

    try:
        data, page = rebuilt(output)
        content = _json(data) if file is not None and file.endswith(".json") else page
        place = _write_beside(output, content) if file is None else _write_file(file, content)
    except (PipelineError, OSError) as error:
        raise UsageError(str(error)) from None
    if opens:
        _open(place)
    return [*_state(data), near_path(place)]


def _state(data: Data) -> list[str]:
    if data["state"] == KILLED:
        return ["the run was killed: this is what it had recorded"]
    return ["the run was killed, or is still running"] if data["state"] == RUNNING else []


def _json(data: Data) -> bytes:
    from gristmill import fast_json

    return fast_json.dumps(data, option=fast_json.OPT_INDENT_2) + b"\n"


def _write_beside(output: str, page: bytes) -> str:
    folder = Folder(output)
    place = folder.name.rstrip("/") + "/" + PAGE
    try:
        with plain_errors(place, folder.options, "written"):
            folder.write(PAGE, page)
    except PlanError as error:
        raise PlanError(f"{error} Name another file with -o.") from None
    return folder.path(PAGE) if folder.is_local else place


def _write_file(file: str, content: bytes) -> str:
    path = Path(file)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}. Name another file with -o.") from None
    return os.path.abspath(file)


def _open(place: str) -> None:
    import webbrowser

    if "://" in place:
        raise UsageError(f"{place} is not on this machine: write a copy with -o FILE and open that.")
    if not webbrowser.open(f"file://{os.path.abspath(place)}"):
        raise UsageError(f"no browser was found: open {place} yourself.")


def diff(one: str, other: str, html: str | None, id_field: str) -> list[str]:
    """Compare two runs. Return the lines to print."""
    from gristmill.report.changes import compared, page_of, text_of

    try:
        found = compared(one, other, id_field)
        if html is None:
            return list(text_of(found))
        return [near_path(_write_file(html, page_of(found)))]
    except (PipelineError, OSError) as error:
        raise UsageError(str(error)) from None
