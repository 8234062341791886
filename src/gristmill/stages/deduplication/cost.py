"""What a deduplication takes: memory, disk and time, before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.stages.barrier import Forecast, Looked
from gristmill.stages.deduplication import link, match

ID_BYTES = 72
"""Of the identity of a document, as it is stored."""
WORKER_BYTES = 110 << 20
"""Of a worker that reads, on top of what every process of the run shares."""
PROCESS_BYTES = 140 << 20
"""Of the driver and the process that workers are made from."""
MATCH_S = 1.6e-7
"""To compare a key with all others."""
RECORD_S = 2.0e-6
"""To write down what becomes of a document, of one that is removed."""


def bands_at_once(documents: int, bands: int, memory: int) -> int:
    """How many bands can be compared at the same time in half of the memory; at least one."""
    return max(1, min(bands, memory // 2 // max(1, documents * (match.BYTES_EACH + 8))))


@dataclass(frozen=True)
class Cost:
    """Of a number of documents with a number of bytes of text."""

    looked: Looked
    memory: int
    workers: int
    stored: bool
    """Whether documents are put aside, too."""
    key_bytes: int
    """Of the keys of a document."""
    bands: int = 1
    per_iteration: int | None = None

    @property
    def at_once(self) -> int:
        return self.per_iteration or bands_at_once(self.looked.documents, self.bands, self.memory)

    @property
    def peak_bytes(self) -> int:
        reading = self.workers * WORKER_BYTES
        busy = min(self.workers, self.at_once, self.bands)
        matching = busy * min(self.looked.documents * (match.BYTES_EACH + 8), self.memory // (2 * busy))
        matching += self.looked.documents * link.BYTES_EACH
        return PROCESS_BYTES + max(reading, matching)

    @property
    def disk_bytes(self) -> int:
        each = ID_BYTES + self.key_bytes + 16 + 16 * self.bands // 4
        return self.looked.documents * each + (self.looked.text_bytes if self.stored else 0)

    @property
    def seconds(self) -> float:
        reading = 1.6 * self.looked.documents * self.looked.seconds_each / self.workers  # and once more, to write
        matching = self.looked.documents * MATCH_S * self.bands
        return 1.0 + reading + matching + self.looked.documents * RECORD_S / self.workers

    def forecast(self) -> Forecast:
        iterations = -(-self.bands // self.at_once)
        many = f", {self.at_once} bands at a time in {iterations} iterations" if self.bands > 1 else ""
        return Forecast(
            self.looked.documents, self.looked.text_bytes, self.peak_bytes, self.disk_bytes, self.seconds, many
        )
