"""All rules of the advisor, and their findings in order of importance."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gristmill.report.advisor import documents, resources, throughput
from gristmill.report.advisor.finding import ORDER, Advice
from gristmill.report.place import Data

Rule = Callable[[Data], Iterator[Advice]]

RULES: tuple[Rule, ...] = (
    documents.did_not_end,
    documents.failures,
    resources.workers_died,
    resources.memory_near_limit,
    throughput.bottleneck,
    throughput.gpu_starved,
    throughput.gpu_idle,
    throughput.small_batches,
    resources.fixed_workers,
    resources.gpu_memory,
    resources.few_blocks,
    resources.slow_storage,
    resources.oversized_tasks,
    throughput.setup_dominates,
    resources.blocked_by_output,
    documents.never_drops,
    documents.nearly_always_drops,
    documents.skewed_duplicates,
)


def advise(data: Data) -> list[Data]:
    """Return the findings of all rules, the most important first, as plain values."""
    found = [finding for rule in RULES for finding in rule(data)]
    found.sort(key=lambda finding: ORDER.index(finding.kind))
    return [finding._asdict() for finding in found]
