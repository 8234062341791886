"""Errors of stages as messages for users."""

from __future__ import annotations

import os
import traceback

from gristmill.errors import OutOfSpace, StopRun
from gristmill.secrets import without_secrets
from gristmill.stages import core, function_definitions

_CALLERS = os.path.join(os.path.dirname(core.__file__), "asynchronous.py")
_NOT_SHOWN = (os.path.dirname(__file__), core.__file__, function_definitions.__file__, _CALLERS)
"""Frames of these files are removed from tracebacks: they do not help the author of a stage."""
_LONGEST_LINE = 500
_LONGEST_DETAIL = 20_000


class Interrupt(BaseException):
    """The run is to end now. Not an `Exception`, so that stages do not swallow it."""


class StageError(Exception):
    """A stage raised, or broke its contract. Carries text, not the exception, which may not be picklable.

    ``ends_run`` marks an error that no document causes: another attempt cannot help. A stage raises `StopRun` for it.
    """

    def __init__(self, stage: int, error: str, detail: str = "", ends_run: bool = False) -> None:
        super().__init__(error)
        self.stage = stage
        self.error = error
        self.detail = detail
        self.ends_run = ends_run


def stage_error(index: int, error: BaseException) -> StageError:
    """Return the error of the stage at this place of its step as a `StageError`."""
    if isinstance(error, StageError):
        return error
    return StageError(index, one_line(error), details(error), ends_run=isinstance(error, StopRun))


def one_line(error: BaseException) -> str:
    """An exception's type and the first line of its message."""
    if isinstance(error, OutOfSpace | StopRun):
        return without_secrets(str(error))
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    try:
        text = without_secrets(str(error).strip().partition("\n")[0])
    except Exception:  # the exception may be the user's own, and broken
        text = "its message cannot be shown"
    line = f"{name}: {text}" if text else name
    return line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + " ..."


def details(error: BaseException) -> str:
    """An exception's traceback, with those it came from, without the frames of the engine.

    Empty for a full disk and the like: the place in the code does not help then.
    """
    if isinstance(error, OutOfSpace | StopRun):
        return ""
    whole = traceback.TracebackException.from_exception(error)
    todo = [whole]
    while todo:
        part = todo.pop()
        part.stack[:] = [frame for frame in part.stack if not frame.filename.startswith(_NOT_SHOWN)]
        todo += [x for x in (part.__cause__, part.__context__) if x is not None]
    text = without_secrets("".join(whole.format()))
    half = _LONGEST_DETAIL // 2
    return text if len(text) <= _LONGEST_DETAIL else f"{text[:half]}\n...\n{text[-half:]}"
