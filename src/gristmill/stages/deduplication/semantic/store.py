"""The files of semantic deduplication between its steps.

    parts/part-000012.arrow     ids of the documents of a block that have an embedding, in order
    parts/part-000012.points    their embeddings on the grid, int32
    parts/part-000012.scores    what they are ranked by, float64
    parts/part-000012.labels    their clusters, int32, and .distances to the centroids, float64
    parts.json                  the parts in the order of the input, with the number of their first row
    centroids.npy               on the coarse grid
    clusters.npy                where each cluster begins in the next two
    points.bin, keys.bin        all points, and `KEY` for each, by cluster; inside one in the order of the input

A *row* is the number of a document among those with an embedding, in the order of the input. All workers must see the
folder: on this machine, or mounted on each node.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gristmill import fast_json
from gristmill.lazy import np
from gristmill.storage import TEMPORARY
from gristmill.tasks.names import part_name

if TYPE_CHECKING:
    import pyarrow as pa

POINT_BYTES = 4
"""Of a coordinate on the grid."""
KEY = [("row", "<i8"), ("distance", "<f8"), ("score", "<f8")]
KEY_BYTES = 24
OPEN_PARTS = 64
"""Files of ids that a worker keeps open."""
RANKED = ".ranked-"
"""The prefix of temporary files in which a worker ranks a cluster."""


@dataclass(frozen=True, slots=True)
class StoredPart:
    """The documents of one batch."""

    task_id: str
    rows: int
    start: int = 0
    """The row of the first document."""


class EmbeddingStore:
    """The folder, by its path. Files appear in it whole or not at all."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def part_file(self, task_id: str, kind: str) -> str:
        return self.file(os.path.join("parts", part_name(task_id, f".{kind}")))

    def write(self, path: str, data: Any) -> None:
        """Write or replace a file; ``data`` is bytes, a buffer or an array."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}{TEMPORARY}{uuid.uuid4().hex}"
        content: Any = np.ascontiguousarray(data).reshape(-1).view(np.uint8) if isinstance(data, np.ndarray) else data
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, path)

    def save(self, name: str, array: np.ndarray) -> None:
        """Write an array under a name ending in .npy."""
        temporary = self.file(f"{TEMPORARY}{uuid.uuid4().hex}-{name}")
        np.save(temporary, array)
        os.replace(temporary, self.file(name))

    def load(self, name: str) -> np.ndarray:
        found: np.ndarray = np.load(self.file(name))
        return found

    def own_files(self) -> list[str]:
        """Return the names of its files, without the log of steps."""
        return [name for name in os.listdir(self.path) if name != "_gristmill"]

    def drop_unfinished(self) -> None:
        """Remove temporary files of killed workers; no worker may be running."""
        for folder in (self.path, self.file("parts")):
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                if TEMPORARY in name or name.startswith(RANKED):
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(folder, name))

    def drop_unsorted(self) -> None:
        """Remove files that are not needed once all is sorted by cluster."""
        for part in self.parts:
            for kind in ("points", "labels", "distances", "scores", "starts"):
                with suppress(FileNotFoundError):  # an earlier run may have been stopped here
                    os.unlink(self.part_file(part.task_id, kind))

    def write_parts(self, parts: Sequence[StoredPart], dim: int, as_text: Sequence[str]) -> None:
        """Write the parts in order, and the columns of ids whose type differs between parts."""
        listed = [[part.task_id, part.rows, part.start] for part in parts]
        self.write(self.file("parts.json"), fast_json.dumps({"dim": dim, "as_text": list(as_text), "parts": listed}))

    @cached_property
    def _index(self) -> dict[str, Any]:
        with open(self.file("parts.json"), "rb") as file:
            index: dict[str, Any] = fast_json.loads(file.read())
            return index

    @property
    def dim(self) -> int:
        return int(self._index["dim"])

    @cached_property
    def parts(self) -> list[StoredPart]:
        return [StoredPart(*values) for values in self._index["parts"]]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def points_of(self, part: StoredPart, step: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the points of a part, ``step`` at a time, each with the place of its first one."""
        path = self.part_file(part.task_id, "points")
        for at in range(0, part.rows, step):
            yield at, read_points(path, at, min(at + step, part.rows), self.dim)

    @cached_property
    def names(self) -> DocumentIds:
        return DocumentIds(self, self.parts, list(self._index["as_text"]))


def read_points(path: str, start: int, stop: int, dim: int) -> np.ndarray:
    """Return the points from ``start`` up to ``stop`` of a file."""
    offset = start * dim * POINT_BYTES
    found: np.ndarray = np.fromfile(path, np.int32, (stop - start) * dim, offset=offset).reshape(-1, dim)
    return found


class DocumentIds:
    """The ids of documents, and their other columns, by row."""

    def __init__(self, store: EmbeddingStore, parts: Sequence[StoredPart], as_text: Sequence[str]) -> None:
        self.store = store
        self.parts = [part for part in parts if part.rows]
        self.starts = np.array([part.start for part in self.parts], dtype=np.int64)
        self.as_text = as_text
        self._open: dict[int, pa.Table] = {}

    def take(self, rows: np.ndarray) -> pa.Table:
        """Return a table with a line for each row. Rows may come in any order and more than once."""
        import pyarrow as pa

        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        of_part = np.searchsorted(self.starts, wanted, side="right") - 1
        tables = []
        edges = [0, *(np.flatnonzero(np.diff(of_part)) + 1).tolist(), len(wanted)] if len(wanted) else [0, 0]
        for a, b in pairwise(edges):
            number = int(of_part[a]) if b > a else 0
            tables.append(self._table(number).take(pa.array(wanted[a:b] - self.starts[number])))
        back = np.empty(len(rows), dtype=np.int64)
        back[order] = np.arange(len(rows))
        return pa.concat_tables(tables, promote_options="permissive").take(pa.array(back)).combine_chunks()

    def _table(self, number: int) -> pa.Table:
        import pyarrow as pa

        found = self._open.get(number)
        if found is None:
            with pa.memory_map(self.store.part_file(self.parts[number].task_id, "arrow")) as file:
                found = pa.ipc.open_file(file).read_all()
            for name in self.as_text:
                if name in found.column_names:
                    column = found.column(name).cast(pa.large_string())
                    found = found.set_column(found.column_names.index(name), name, column)
            if len(self._open) >= OPEN_PARTS:
                self._open.pop(next(iter(self._open)))
            self._open[number] = found
        return found
