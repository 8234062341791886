"""The account of documents as text: read, dropped by each stage and why, kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gristmill.ledger.run import RunLedger
from gristmill.metrics import format as fmt
from gristmill.pipeline.text_layout import padded, wrapped

SHOWN_REASONS = 30
_BAR = 30
_LEAST_BAR, _LEAST_NAME, _LEAST_WORDS = 6, 16, 16


def funnel(ledger: RunLedger, stages: Sequence[str], columns: int | None = None) -> Iterator[str]:
    """Yield rows: documents read, each stage that changed their number, documents kept. They fit ``columns``."""
    whole = ledger.total()
    left = whole.documents
    most = max(left + whole.made, 1)
    files = len(ledger.files)
    rows = [("read", "", left, f"from {files:,} file{'s' * (files != 1)}")]
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
    yield from _table(rows, most, columns)
    if ledger.resumed:
        blocks = max(ledger.blocks_total, len(ledger.blocks))
        yield from wrapped(f"{ledger.resumed:,} of {blocks:,} blocks by earlier runs", columns, 2)
    elif ledger.documents_resumed:  # the blocks of the last phase are others than those of the input
        words = f"{ledger.documents_resumed:,} of {whole.documents:,} documents were read by earlier runs"
        yield from wrapped(words, columns, 2)
    for (stage, name), n in sorted(whole.counters.items()):
        yield from wrapped(f"{stage}: {name} {n:,}", columns, 2)
    for (stage, name), values in sorted(whole.notes.items()):
        shown = ", ".join(f"{value:,}" for value in values)
        yield from wrapped(f"{stage}: {name.replace('_', ' ')} {shown}", columns, 2)


def _shown(reasons: Counter[str]) -> Iterator[tuple[str, int]]:
    """Yield the most common reasons, then the rest as one."""
    ordered = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    yield from ordered[:SHOWN_REASONS]
    if rest := ordered[SHOWN_REASONS:]:
        yield f"{len(rest):,} more reasons", sum(n for _, n in rest)


def _of(dropped: Counter[tuple[str, str]], stage: str) -> Counter[str]:
    return Counter({reason: n for (name, reason), n in dropped.items() if name == stage})


def _table(rows: Sequence[tuple[str, str, int, str]], most: int, columns: int | None) -> Iterator[str]:
    rows = [(fmt.escaped(name), change, left, fmt.escaped(words)) for name, change, left, words in rows]
    first = max(fmt.width(name) for name, *_ in rows)
    second = max(len(change) for _, change, *_ in rows)
    third = max(len(f"{left:,}") for *_, left, _ in rows)
    bars = _BAR
    words_width: int | None = None
    if columns is not None:
        first = min(first, max(_LEAST_NAME, columns // 3))
        left_over = max(0, columns - (first + second + third + 4 * 2))
        longest = max(fmt.width(words) for *_, words in rows)
        bars = min(_BAR, max(_LEAST_BAR, left_over - longest - 2))
        bars = bars if left_over - bars - 2 >= min(longest, _LEAST_WORDS) else 0
        words_width = max(0, left_over - bars - 2)
    for name, change, left, words in rows:
        bar = "█" * round(bars * left / most) if left >= 0 else ""
        number = f"{left:,}" if left >= 0 else ""
        shown = words if words_width is None else fmt.cut(words, words_width)
        yield f"  {padded(name, first)}  {change:>{second}}  {number:>{third}}  {bar:<{bars}}  {shown}".rstrip()
