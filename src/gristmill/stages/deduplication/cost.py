"""Estimates of the memory, disk and time of a deduplication."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.stages.barrier import Forecast, InputEstimate
from gristmill.stages.deduplication import match
from gristmill.stages.deduplication.records import groups_for, rows_at_once

ID_BYTES = 72
"""Of the stored id of a document."""
PROCESS_BYTES = 195 << 20
"""Of the driver and the process that workers are made from."""
READING_BYTES = 60 << 20
"""Of a worker that reads and makes keys, without its data."""
STREAM_TIMES = 7
"""More memory of a worker that decompresses, in multiples of what it reads at a time."""
SETS_BYTES = 24
"""Of a worker that compares texts, for each byte of text in a block."""
VERIFY_S = 3e-8
"""To compare texts of clusters, per byte."""
WORKER_BYTES = 50 << 20
"""Of a worker that writes records, without records."""
LABEL_BYTES = 16
"""Of the driver, for each document: its cluster and its survivor."""
RECORD_BYTES = 850
"""Of a worker, for each record that it makes at a time."""
REMOVED = 3
"""One document in three is assumed to be removed."""
MATCH_S = 1.6e-7
"""To compare a key with all others."""
RECORD_S = 2.0e-6
"""To write the record of a removed document."""


def bands_at_once(documents: int, bands: int, memory: int) -> int:
    """How many bands can be compared at the same time in half of the memory; at least one."""
    return max(1, min(bands, memory // 2 // max(1, documents * (match.BYTES_EACH + 8))))


@dataclass(frozen=True)
class Cost:
    """The cost of one deduplication."""

    estimate: InputEstimate
    memory: int
    workers: int
    stored: bool
    """Whether documents are stored before the barrier."""
    key_bytes: int
    """Per document."""
    reading_times: int = 2
    """Memory of a worker that makes keys, in multiples of what it reads at a time."""
    match_bytes: int = 46
    """Memory for each document whose keys are compared."""
    verify_bytes: int = 0
    """Memory of the driver to compare texts."""
    bands: int = 1
    per_iteration: int | None = None
    verify: bool = False
    """Whether the texts of all clusters are compared."""

    @property
    def at_once(self) -> int:
        return self.per_iteration or bands_at_once(self.estimate.documents, self.bands, self.memory)

    @property
    def peak_bytes(self) -> int:
        documents, workers = self.estimate.documents, self.workers
        estimate = self.estimate
        held = max(estimate.block_bytes, estimate.stream_bytes)
        each = READING_BYTES + self.reading_times * held + STREAM_TIMES * estimate.stream_bytes
        reading = workers * each
        busy = min(workers, self.at_once, self.bands)
        matching = busy * min(documents * self.match_bytes, self.memory // (2 * busy))
        rows = min(rows_at_once(self.memory, workers), documents // REMOVED // groups_for(documents, workers))
        recording = workers * (WORKER_BYTES + rows * RECORD_BYTES) + self.verify_bytes
        if self.verify:
            part = workers * (WORKER_BYTES + SETS_BYTES * held // REMOVED)
            survivors = 8 * estimate.text_bytes // (4 * REMOVED)  # clusters are assumed to have four documents
            recording = max(recording, part + min(self.memory // 4, survivors))
        return PROCESS_BYTES + max(reading, documents * LABEL_BYTES + max(matching, recording))

    @property
    def disk_bytes(self) -> int:
        each = ID_BYTES + self.key_bytes + 16 + 16 * self.bands // 4
        verified = self.estimate.text_bytes // REMOVED if self.verify else 0
        return self.estimate.documents * each + verified + (self.estimate.stored_bytes if self.stored else 0)

    @property
    def seconds(self) -> float:
        reading = 1.6 * self.estimate.documents * self.estimate.seconds_each / self.workers  # read again for writing
        matching = self.estimate.documents * MATCH_S * self.bands
        recording = self.estimate.documents * RECORD_S / self.workers
        verifying = 0.0
        if self.verify:  # texts are read again and compared
            again = 0.6 * self.estimate.documents * self.estimate.seconds_each
            verifying = (again + VERIFY_S * self.estimate.text_bytes / REMOVED) / self.workers
        return 1.0 + reading + matching + recording + verifying

    def forecast(self) -> Forecast:
        iterations = -(-self.bands // self.at_once)
        many = f", {self.at_once} bands at a time in {iterations} iteration{'s' * (iterations != 1)}"
        many *= self.bands > 1
        return Forecast(
            self.estimate.documents, self.estimate.text_bytes, self.peak_bytes, self.disk_bytes, self.seconds, many
        )
