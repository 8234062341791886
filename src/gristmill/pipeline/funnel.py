"""The account of documents as text for people: what came in, what each stage let go and why, what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gristmill.ledger.run import RunLedger

SHOWN_REASONS = 30
_BAR = 30


def funnel(ledger: RunLedger, stages: Sequence[str]) -> Iterator[str]:
    """One row for what was read, one for each stage that changed the number of documents, one for what is left."""
    whole = ledger.total()
    left = whole.documents
    most = max(left + whole.made, 1)
    files = len(ledger.files)
    resumed = f", {ledger.resumed:,} of {len(ledger.blocks):,} blocks by earlier runs" if ledger.resumed else ""
    rows = [("read", "", left, f"from {files:,} file{'s' * (files != 1)}{resumed}")]
    for reason, n in _shown(whole.errored):
        left -= n
        rows.append(("  errored", f"-{n:,}", left, reason))
    for stage in stages:
        gone = _of(whole.dropped, stage)
        if not gone:
            continue
        rows.append((stage, f"-{gone.total():,}", left - gone.total(), ""))
        left -= gone.total()
        rows += [("", f"-{n:,}", -1, reason) for reason, n in _shown(gone) if reason != stage]
    if whole.made:
        left += whole.made
        rows.append(("made", f"+{whole.made:,}", left, "documents more, by splitting"))
    if whole.merged:
        left -= whole.merged
        rows.append(("merged", f"-{whole.merged:,}", left, "into others"))
    rows.append(("kept", "", whole.kept, f"{whole.kept / most:.1%}"))
    yield from _table(rows, most)
    for (stage, name), n in sorted(whole.counters.items()):
        yield f"  {stage}: {name} {n:,}"


def _shown(reasons: Counter[str]) -> Iterator[tuple[str, int]]:
    """The most common ones, and the rest in one."""
    ordered = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    yield from ordered[:SHOWN_REASONS]
    if rest := ordered[SHOWN_REASONS:]:
        yield f"{len(rest):,} more reasons", sum(n for _, n in rest)


def _of(dropped: Counter[tuple[str, str]], stage: str) -> Counter[str]:
    return Counter({reason: n for (name, reason), n in dropped.items() if name == stage})


def _table(rows: Sequence[tuple[str, str, int, str]], most: int) -> Iterator[str]:
    first = max(len(name) for name, *_ in rows)
    second = max(len(change) for _, change, *_ in rows)
    third = max(len(f"{left:,}") for *_, left, _ in rows)
    for name, change, left, words in rows:
        bar = "█" * round(_BAR * left / most) if left >= 0 else ""
        number = f"{left:,}" if left >= 0 else ""
        yield f"  {name:<{first}}  {change:>{second}}  {number:>{third}}  {bar:<{_BAR}}  {words}".rstrip()
