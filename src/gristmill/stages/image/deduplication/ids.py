"""Removal of images whose ids are in a list."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.errors import PlanError
from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import builtin
from gristmill.storage import Folder
from gristmill.tasks import DocumentBatch
from gristmill.tasks.image import IMAGE_ID

REASON = "in the list of duplicates"


@builtin
@dataclass(eq=False, repr=False)
class ImageDuplicatesRemovalStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Removes the images whose ``image_id_field`` is in a column of Parquet files: those of a folder, or one file.

    With ``duplicate_id_field="document_id"`` the folder may be the ``duplicates/`` of an earlier run with an
    ``id_field``. Each worker holds the list in memory.
    """

    removal_parquets_dir: str | os.PathLike[str]
    duplicate_id_field: str = "id"
    image_id_field: str = IMAGE_ID

    accounts_for_documents = True
    row_wise = True
    loads = ("pyarrow.parquet",)

    def __post_init__(self) -> None:
        self._ids: Any = None

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.image_id_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def fingerprint_files(self) -> Sequence[str | os.PathLike[str]]:
        return [self.removal_parquets_dir]

    def check_needs(self) -> None:
        import pyarrow.parquet as pq

        files = self._files()
        if not files:
            raise PlanError(f"{self.name!r}: {os.fspath(self.removal_parquets_dir)} holds no Parquet files.")
        folder, name = files[0]
        with folder.open(name) as file:
            columns = pq.ParquetFile(file).schema_arrow.names
        if self.duplicate_id_field not in columns:
            raise PlanError(
                f"{self.name!r}: {folder.full_path(name)} has no column {self.duplicate_id_field!r}, which "
                f"duplicate_id_field names. Columns: {', '.join(columns)}."
            )

    def setup(self, worker_metadata: Any = None) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = []
        for folder, name in self._files():
            with folder.open(name) as file:
                column = pq.ParquetFile(file).read([self.duplicate_id_field]).column(0)
                columns.append(column.cast(pa.large_string()))
        chunks = [chunk for column in columns for chunk in column.chunks]
        self._ids = pa.chunked_array(chunks, pa.large_string()).unique()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        from gristmill.stages.text.filters.columns import column_of
        from gristmill.tasks.arrow import mask_of, one_array

        column = one_array(column_of(task, self.image_id_field)).cast(pa.large_string())
        listed = pc.and_(pc.is_in(column, value_set=self._ids), column.is_valid())
        return task.keep(~mask_of(listed), reason=REASON)

    def _files(self) -> list[tuple[Folder, str]]:
        folder = Folder(self.removal_parquets_dir)
        names = [(folder, name) for name in folder.names() if name.endswith(".parquet")]
        if not names and os.fspath(self.removal_parquets_dir).endswith(".parquet"):
            above, _, name = os.fspath(self.removal_parquets_dir).rpartition("/")
            above_folder = Folder(above or ".")
            names = [(above_folder, name)] if above_folder.exists(name) else []
        return names
