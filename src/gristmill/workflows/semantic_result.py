"""The result of a semantic deduplication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class SemanticDeduplicationResult:
    """Counts, times and paths of one run."""

    documents: int
    """Documents that were read."""
    embedded: int
    """Documents with a usable embedding."""
    quarantined: dict[str, int]
    """The others by reason; they are kept, and listed in ``paths["quarantine"]``."""
    unreadable: int
    """Records that could not be read; a written output has them in its own quarantine."""
    dim: int
    clusters: int
    """Clusters that have a document."""
    largest_cluster: int
    fit_rows: int
    """Documents that k-means was fitted on."""
    fit_is_sample: bool
    """Whether k-means was fitted on a sample: because of ``memory_limit`` or ``fit_data_fraction``."""
    iterations: int
    converged: bool
    duplicates: int | None
    """None if no ``eps`` was given."""
    chained: int | None
    """Duplicates whose most similar document is a duplicate too: their survivor may be less similar."""
    kept: int | None
    """Documents in the written output; None without ``perform_removal``."""
    device: str
    gpu_peak_bytes: int
    """The most memory that a worker's tensors used on a GPU."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By step, without the steps of earlier runs."""
    paths: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, done: Mapping[str, Any], seconds: dict[str, float], paths: dict[str, str]) -> Self:
        """Return the result of steps by name."""
        read, fitted, assigned, found = (done.get(name, {}) for name in ("read", "kmeans", "assign", "pairwise"))
        identified = "duplicates" in paths
        return cls(
            documents=read["rows"] + sum(read["bad"].values()) + read["unreadable"],
            embedded=read["rows"],
            quarantined=read["bad"],
            unreadable=read["unreadable"],
            dim=read["dim"],
            clusters=assigned.get("clusters", 0),
            largest_cluster=assigned.get("largest", 0),
            fit_rows=fitted.get("fit_rows", 0),
            fit_is_sample=fitted.get("fit_is_sample", False),
            iterations=fitted.get("iterations", 0),
            converged=fitted.get("converged", True),
            duplicates=found.get("duplicates", 0) if identified else None,
            chained=found.get("chained", 0) if identified else None,
            kept=done.get("removal", {}).get("kept"),
            device=fitted.get("device", "none"),
            gpu_peak_bytes=max(fitted.get("gpu_peak", 0), found.get("gpu_peak", 0)),
            seconds=seconds,
            paths=paths,
        )

    def summary(self) -> str:
        """Return a few lines of text."""
        lines = [f"{self.documents:,} documents, {self.embedded:,} with embeddings of {self.dim} numbers"]
        if self.quarantined:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.quarantined.items()))
            lines.append(f"without a usable embedding, kept: {reasons}")
        if self.unreadable:
            lines.append(f"unreadable records: {self.unreadable:,}")
        fitted = f"a sample of {self.fit_rows:,}" if self.fit_is_sample else "all of them"
        ended = "converged" if self.converged else "stopped"
        lines.append(
            f"{self.clusters:,} clusters, the largest of {self.largest_cluster:,}; k-means on {self.device}, "
            f"fitted on {fitted}, {ended} after {self.iterations} rounds"
        )
        if self.duplicates is not None:
            lines.append(f"{self.duplicates:,} duplicates, {self.chained:,} of them by way of another duplicate")
        if self.kept is not None:
            lines.append(f"{self.kept:,} documents written")
        times = ", ".join(f"{name} {spent:.1f}" for name, spent in self.seconds.items())
        lines.append(f"seconds: {times}" if times else "all of it was done before")
        return "\n".join(lines)
