"""How a run treats an output that exists."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.errors import PlanError


@dataclass(frozen=True, slots=True)
class ResumeOptions:
    """The options of `Pipeline.run` for resuming."""

    fresh: bool = False
    """Remove the output of earlier runs and start over."""
    append: bool = False
    """Process files that are new in the input, and leave the output of the others as it is."""
    retry_failed: bool = False
    """Process blocks again in which a stage failed on documents."""
    verify: bool = True
    """Compare the checksums of the files that earlier runs wrote; otherwise only sizes are compared."""

    def check(self) -> None:
        """Raise `PlanError` for options that exclude each other."""
        if self.fresh and (self.append or self.retry_failed):
            other = "append" if self.append else "retry_failed"
            raise PlanError(f"fresh starts over, {other} resumes: give one of the two.")
