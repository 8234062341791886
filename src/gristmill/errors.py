"""Errors of pipelines and runs."""

from __future__ import annotations

import errno
import resource
from typing import Any

from gristmill.secrets import without_secrets


class PipelineError(Exception):
    """Something is wrong with a pipeline or its run. Secrets in URLs are taken out of the message."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_secrets(part) if isinstance(part, str) else part for part in args))


class PlanError(PipelineError):
    """The pipeline cannot run as it is written. Nothing was started."""


class TextFieldError(PlanError):
    """The first records have no text in the given field. The first line of the message describes the records."""


class ModelError(PlanError):
    """A model cannot be used: it is missing, damaged, gated, or not of the kind that a stage needs."""


def not_writable(url: str, error: OSError) -> PlanError:
    """Return the error for a folder that cannot be written to."""
    if isinstance(error, OutOfSpace):
        return PlanError(str(error))
    return PlanError(f"{url} cannot be written to: {error.strerror or error}")


class OutOfSpace(OSError):
    """A file cannot be written because of a limit of the system. The message names the limit and what to do."""


def out_of_space(what: str, error: OSError) -> OutOfSpace | None:
    """Return the error for a full disk, a used-up quota or a file beyond the limit on file sizes; None for others."""
    again = "and run the same command to resume"
    if error.errno == errno.EFBIG:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        size = "" if limit == resource.RLIM_INFINITY else f", now {limit:,} bytes"
        return OutOfSpace(
            f"{what} cannot be written: it would be larger than the limit on the size of files (ulimit -f{size}). "
            f"Raise the limit with 'ulimit -f unlimited' {again}."
        )
    if error.errno == errno.ENOSPC:
        return OutOfSpace(f"{what} cannot be written: the disk is full. Free some space {again}.")
    if error.errno == errno.EDQUOT:
        return OutOfSpace(f"{what} cannot be written: the disk quota is used up. Free some space {again}.")
    return None


class PipelineFileError(PlanError):
    """A pipeline's YAML is wrong. The message has a line for each problem, with file and line."""


class StopRun(PipelineError):
    """A stage raises it to end the run: no other task can succeed either. Finished blocks stay, and the run resumes."""


class LedgerError(PipelineError):
    """The account of a run does not balance: tasks were lost or counted twice. This is a bug of the engine
    or, where documents do not add up, of a stage."""


class OutputChanged(PlanError):
    """The output folder has the output of another pipeline, or of another input. Nothing was started."""


class OutputDamaged(OutputChanged):
    """Files in the output folder are not as a run has written them. Nothing was removed."""


class OutputsNotKept(PipelineError):
    """The final tasks of a run were requested, but not kept."""


class PipelineFailed(PipelineError):
    """A run ended with failed tasks, or kept nothing. ``result`` is the `RunResult`."""

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[type[PipelineFailed], tuple[str, Any]]:
        return type(self), (str(self), self.result)


class InputChanged(PipelineFailed):
    """Input files have changed since the run was planned. ``result`` is set at the end of a run."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message, result)


class NothingKept(PipelineFailed):
    """A run read documents and kept none. ``run(allow_empty=True)`` accepts that."""
