"""Why a plan cannot be made."""

from gristmill.errors import PipelineError


class CapacityError(PipelineError):
    """A plan cannot be made. The message says what is wrong, where, and what to do."""
