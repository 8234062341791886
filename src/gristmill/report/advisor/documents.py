"""Rules about documents: rules that drop none or nearly all, failures, and duplicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gristmill.report.advisor.finding import ADVICE, NOTE, PROBLEM, Advice, percent
from gristmill.report.place import FAILED, INTERRUPTED, KILLED, RUNNING, Data

ENOUGH = 1_000
"""Documents that a rule must have seen."""
NEARLY_ALL = 0.95
MANY_FAILED = 0.01
SHOWN = 8
LARGE_CLUSTER = 100
LARGE_SHARE = 0.1


def did_not_end(data: Data) -> Iterator[Advice]:
    """A run that was stopped or failed."""
    state = data.get("state")
    words = {
        FAILED: ("the run failed", str(data.get("error") or "").partition("\n")[0]),
        INTERRUPTED: ("the run was interrupted", str(data.get("error") or "").partition("\n")[0]),
        KILLED: ("the run was killed", "it left a report and did not end"),
        RUNNING: ("the run was killed, or is still running", "it has not written how it ended"),
    }.get(str(state))
    if words is None:
        return
    title, figure = words
    change = "Run the same command again: finished blocks are not processed again."
    if state == FAILED:
        change = f"Fix the cause. {change}"
    yield Advice("did_not_end", PROBLEM, title, figure, change)


def failures(data: Data) -> Iterator[Advice]:
    """Documents that a stage failed on or that could not be read."""
    documents = data.get("documents") or {}
    errored = [(str(reason), int(n)) for reason, n in documents.get("errored") or ()]
    read = int(documents.get("read") or 0)
    total = sum(n for _, n in errored)
    if not total or not read:
        return
    reason, most = max(errored, key=lambda one: one[1])
    failed = int(documents.get("failed") or 0)
    change = "Look at the examples in quarantine below."
    if failed:
        change += f" Fix the stage, and process the {failed:,} failed documents again with --retry-failed."
    yield Advice(
        "failures",
        PROBLEM if total >= read * MANY_FAILED or failed else NOTE,
        f"{total:,} document{'s' * (total != 1)} in quarantine",
        f"{percent(total / read)} of {read:,}; most often ({most:,}): {reason}",
        change,
    )


def never_drops(data: Data) -> Iterator[Advice]:
    """Rules that dropped no document."""
    gone, seen = _drops(data)
    idle = [
        rule
        for rule in data.get("rules") or ()
        if seen.get(str(rule["stage"]), 0) >= ENOUGH
        and not any(
            gone[str(rule["stage"]), reason]
            for reason in (*(rule.get(name) for name in ("rule", "below", "above")), f"not {rule['rule']}")
        )
    ]
    if not idle:
        return
    names = [f"{rule['rule']} ({rule['stage']})" for rule in idle]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    rules = "1 rule" if len(idle) == 1 else f"{len(idle)} rules"
    yield Advice(
        "never_drops",
        NOTE,
        f"{rules} dropped no document",
        f"{', '.join(names[:SHOWN])}{more}, of at least {min(seen[str(one['stage'])] for one in idle):,} documents",
        "Check the thresholds, or remove the rules: they cost time.",
    )


def nearly_always_drops(data: Data) -> Iterator[Advice]:
    """Stages that dropped nearly all documents that reached them."""
    gone, seen = _drops(data)
    for stage, n in seen.items():
        dropped = Counter({reason: count for (name, reason), count in gone.items() if name == stage})
        if n < ENOUGH or dropped.total() < n * NEARLY_ALL:
            continue
        reason, most = dropped.most_common(1)[0]
        yield Advice(
            "nearly_always_drops",
            ADVICE,
            f"{stage!r} dropped nearly all documents",
            f"{dropped.total():,} of {n:,}, {percent(dropped.total() / n)}; most often ({most:,}): {reason}",
            f"Check its thresholds and its text_field: gristmill dropped OUTPUT --stage {stage!r} shows examples.",
        )


def _drops(data: Data) -> tuple[Counter[tuple[str, str]], dict[str, int]]:
    """Return dropped documents by stage and reason, and the documents that reached each stage that can drop."""
    documents = data.get("documents") or {}
    gone: Counter[tuple[str, str]] = Counter()
    for stage, reason, n in documents.get("dropped") or ():
        gone[str(stage), str(reason)] += int(n)
    left = int(documents.get("read") or 0) - sum(int(n) for _, n in documents.get("errored") or ())
    seen: dict[str, int] = {}
    for stage in data.get("stages") or ():
        name = str(stage.get("name"))
        dropped = sum(n for (of, _), n in gone.items() if of == name)
        seen[name] = left
        left -= dropped
    return gone, seen


def skewed_duplicates(data: Data) -> Iterator[Advice]:
    """One cluster with a large part of all removed duplicates."""
    for found in data.get("duplicates") or ():
        removed, largest = int(found.get("removed") or 0), int(found.get("largest") or 0)
        if largest < LARGE_CLUSTER or largest - 1 < removed * LARGE_SHARE:
            continue
        yield Advice(
            "skewed_duplicates",
            ADVICE,
            "one cluster has a large part of the duplicates",
            f"{largest:,} documents in one of {int(found['clusters']):,} clusters, "
            f"{percent((largest - 1) / removed)} of the {removed:,} removed",
            "Look at its documents below. Drop such pages with a filter before deduplication, which then needs less "
            "time and memory; a cluster linked only transitively is split by verify=True.",
        )
