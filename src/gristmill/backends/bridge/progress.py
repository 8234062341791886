"""Progress of a run on a bridge, as lines of text. Ray Data and Xenna show their tasks, but no documents."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gristmill.metrics import format as fmt
from gristmill.metrics.view import view_for

if TYPE_CHECKING:
    from gristmill.backends.bridge.accounts import RunAccounts

VIEWS = ("auto", "lines", "off")
_FIRST_S = 5.0


class ProgressLines:
    """Writes a line to standard error after 5 seconds, one every ``interval_s`` seconds, and one at the end."""

    def __init__(self, view: str = "auto", interval_s: float = 60.0) -> None:
        self._view = view_for("off" if view == "off" else "lines")
        self._interval_s = interval_s
        self._begun = time.monotonic()
        self._next = self._begun + min(_FIRST_S, interval_s)

    def show(self, accounts: RunAccounts, ended: bool = False) -> None:
        """Write a line if it is time, or if the run has ended."""
        now = time.monotonic()
        if ended or now >= self._next:
            self._next = now + self._interval_s
            self._view.message(f"{fmt.clock(now - self._begun)}, {line(accounts)}")


def line(accounts: RunAccounts) -> str:
    """Return the progress: blocks and documents of a pipeline that begins with a reader, and tasks of all steps."""
    parts = []
    ledger = accounts.ledger
    if ledger is not None:
        read, kept, _ = ledger.so_far()
        parts.append(f"{len(ledger.blocks):,}/{ledger.blocks_total:,} blocks")
        parts.append(f"{read:,} documents read, {kept:,} kept")
    done, known = sum(accounts.tasks_ended), sum(accounts.tasks_in)
    parts.append(f"tasks: {done:,} done, {known - done:,} open")
    if accounts.account.failures_total:
        parts.append(f"{accounts.account.failures_total:,} failed")
    return " | ".join(parts)
