"""The text formats of Prometheus: version 0.0.4 and OpenMetrics 1.0. Pure: values in, text out.

A `Metric` names a family of samples. `SampleLines` collects the lines of a scrape and joins them by family.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from gristmill.metrics.format import escaped

LONGEST_VALUE = 200
"""The most characters of a label's value. Longer ones end with a hash, so that different ones stay different."""

PLAIN_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

COUNTER, GAUGE, HISTOGRAM, INFO = "counter", "gauge", "histogram", "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of samples."""

    name: str
    """As in a query. A counter ends with ``_total``, information with ``_info``."""
    kind: str
    labels: tuple[str, ...]
    """Beside those that all metrics have."""
    help: str

    def head(self, openmetrics: bool) -> str:
        """Return the lines before the samples."""
        name, kind = self.name, self.kind
        if openmetrics:
            name = name.removesuffix("_total").removesuffix("_info")
        elif kind == INFO:
            kind = GAUGE
        return f"# HELP {name} {self.help}\n# TYPE {name} {kind}\n"


@lru_cache(maxsize=8192)
def label_value(text: str) -> str:
    """Return a text as the value of a label: one line of UTF-8, of limited length.

    Control characters, bidirectional marks and what is no UTF-8 are shown as escapes.

    >>> print(label_value('"a"'), label_value("two\\nlines"))
    \\"a\\" two\\\\nlines
    """
    if len(text) > LONGEST_VALUE:
        mark = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=4).hexdigest()
        text = f"{text[: LONGEST_VALUE - 9]}~{mark}"
    return escaped(text).replace("\\", r"\\").replace('"', r"\"")


def labels_of(values: Mapping[str, str]) -> str:
    """Return labels as they are in a line, without braces.

    >>> labels_of({"step": "clean", "state": "busy"})
    'step="clean",state="busy"'
    """
    return ",".join(f'{name}="{label_value(value)}"' for name, value in values.items())


@lru_cache(maxsize=256)
def _histogram_template(name: str, labels: str, bounds: tuple[str, ...]) -> str:
    """Return the lines of a histogram, with places for the counts and the sum."""
    labels = labels.replace("%", "%%")
    buckets = "".join(f'{name}_bucket{{{labels},le="{bound}"}} %d\n' for bound in (*bounds, "+Inf"))
    return f"{buckets}{name}_sum{{{labels}}} %s\n{name}_count{{{labels}}} %d\n"


class SampleLines:
    """The samples of one scrape."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, metric: Metric, labels: str, value: float) -> None:
        """Add a sample. ``labels`` are as `labels_of` returns them."""
        lines = self._lines.setdefault(metric.name, [])
        lines.append(f"{metric.name}{{{labels}}} {value}\n")

    def add_histogram(
        self, metric: Metric, labels: str, bounds: Sequence[str], counts: Sequence[int], total: float
    ) -> None:
        """Add a histogram. ``counts`` are not cumulative, and have one element more than ``bounds``."""
        lines = self._lines.setdefault(metric.name, [])
        below = tuple(accumulate(counts))
        lines.append(_histogram_template(metric.name, labels, tuple(bounds)) % (*below, total, below[-1]))

    def text(self, metrics: Sequence[Metric], openmetrics: bool) -> str:
        """Return the samples in the order of ``metrics``. Families without samples are left out."""
        parts = []
        for metric in metrics:
            lines = self._lines.get(metric.name)
            if lines:
                parts.append(metric.head(openmetrics))
                parts += lines
        if openmetrics:
            parts.append("# EOF\n")
        return "".join(parts)


def wants_openmetrics(accept: str) -> bool:
    """Return whether a client prefers OpenMetrics, by its header ``Accept``.

    >>> wants_openmetrics("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
    True
    >>> wants_openmetrics("text/html,*/*;q=0.8")
    False
    """
    best = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        given = dict(piece.split("=", 1) for piece in parameters if "=" in piece)
        if kind.lower() not in best or given.get("version", "1.0.0") not in ("1.0.0", "0.0.4"):
            continue
        try:
            quality = float(given.get("q", "1"))
        except ValueError:
            continue
        best[kind.lower()] = max(best[kind.lower()], quality)
    return best["application/openmetrics-text"] > 0 and best["application/openmetrics-text"] >= best["text/plain"]
