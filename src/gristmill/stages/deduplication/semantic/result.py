"""What a semantic deduplication leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SemanticDeduplicationResult:
    """Counts, times and paths of one run."""

    documents: int
    """Documents that were read."""
    embedded: int
    """Those with an embedding that can be used."""
    quarantined: dict[str, int]
    """The others by reason; they are kept, and listed in ``paths["quarantine"]``."""
    unreadable: int
    """Records that could not be read at all; a written output has them in its own quarantine."""
    dim: int
    clusters: int
    """Clusters that have a document."""
    largest_cluster: int
    fit_rows: int
    """Documents that k-means was fitted on."""
    fit_is_sample: bool
    """Whether those were not all: they did not fit the memory limit, or a fraction was asked for."""
    iterations: int
    converged: bool
    duplicates: int | None
    """None if no ``eps`` was given."""
    chained: int | None
    """Duplicates whose most similar document is a duplicate itself: they stand for one that may be less similar."""
    kept: int | None
    """Documents in the written output; None if none was asked for."""
    device: str
    gpu_peak_bytes: int
    """The most that a worker's tensors took on a GPU."""
    seconds: dict[str, float] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)

    def summary(self) -> str:
        """A few lines for people."""
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
        lines.append("seconds: " + ", ".join(f"{name} {spent:.1f}" for name, spent in self.seconds.items()))
        return "\n".join(lines)
