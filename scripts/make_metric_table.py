"""Write the table of all metrics into docs/guides/prometheus.md, from ``src/gristmill/metrics/metric_table.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gristmill.metrics.metric_table import METRICS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guides" / "prometheus.md"
BEGIN = "<!-- metrics: begin; made by scripts/make_metric_table.py -->\n"
END = "<!-- metrics: end -->\n"


def table() -> Iterator[str]:
    yield from ("| metric | kind | labels | meaning |", "|---|---|---|---|")
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


def with_table(page: str) -> str:
    """Return the page with the table of the code as it is."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n" + "\n".join(table()) + f"\n\n{END}{after}"


def main() -> None:
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote the table of {PAGE}")


if __name__ == "__main__":
    main()
