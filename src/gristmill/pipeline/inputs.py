"""The check that the input did not change during a run."""

from __future__ import annotations

from gristmill.errors import InputChanged
from gristmill.pipeline.planner import Reader
from gristmill.pipeline.result import RunResult

SHOWN = 5


def check_inputs(reader: Reader, result: RunResult) -> None:
    """Raise `InputChanged` if input files have changed since planning, even if failures are ignored."""
    found = reader.changed_inputs()
    if result.ledger is not None:
        found = list(dict.fromkeys([*found, *result.ledger.changed_inputs]))
    if not found:
        return
    shown = "".join(f"\n    {line}" for line in found[:SHOWN])
    more = f"\n    and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    raise InputChanged(
        f"the input changed during the run:{shown}{more}\n"
        "The output is not complete: it lacks documents, or holds some as they were before. When nothing writes to the "
        "input any more, start over with --fresh, or run(fresh=True).",
        result,
    )
