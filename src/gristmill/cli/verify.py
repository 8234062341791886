"""``gristmill verify``: compare an output with its log."""

from __future__ import annotations

OK, FAILED = 0, 1
SHOWN = 100
"""The most problems that are printed."""


def verify(output: str) -> int:
    """Print the problems of an output. Raise `UsageError` if it cannot be verified."""
    from gristmill.cli.target import UsageError
    from gristmill.errors import PipelineError
    from gristmill.pipeline.verify import Verified, verify_output

    try:
        found: Verified = verify_output(output)
    except (PipelineError, OSError) as error:
        raise UsageError(str(error)) from None
    for problem in found.problems[:SHOWN]:
        print(problem)
    if len(found.problems) > SHOWN:
        print(f"and {len(found.problems) - SHOWN:,} more")
    print(found.summary())
    return FAILED if found.problems else OK
