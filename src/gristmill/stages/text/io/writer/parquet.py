"""Parquet files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gristmill.stages.registry import register
from gristmill.stages.text.io.writer.base import FileWriter

if TYPE_CHECKING:
    import pyarrow as pa

COMPRESSIONS = ("snappy", "zstd", "gzip", "brotli", "lz4")


@register
class ParquetWriter(FileWriter):
    """One Parquet file for each batch, in the folder ``path``, named by the task.

    Columns keep their types. With ``fields`` only these are written, in this order; one that is not there is left
    out. ``compression`` is "snappy", "zstd", "gzip", "brotli", "lz4" or None; ``write_kwargs`` may hold
    "compression_level" and "row_group_size" (rows). ``excluded`` is as for `JsonlWriter`.
    """

    extension = ".parquet"

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: Sequence[str] | None = None,
        compression: str | None = "snappy",
        excluded: bool | float = True,
        write_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.write_options = self._tell(path, fields, excluded, write_kwargs, ("compression_level", "row_group_size"))
        if compression is not None and compression not in COMPRESSIONS:
            names = ", ".join(map(repr, COMPRESSIONS))
            raise ValueError(f"compression must be one of {names} or None, not {compression!r}.")
        self.compression = compression

    def preload(self) -> None:
        import pyarrow.parquet  # noqa: F401  # slow to import, and shared by all workers

    def _rendered(self, table: pa.Table) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = self._visible(table)
        if self.fields is not None:
            names = [name for name in self.fields if name in names]
        sink = pa.BufferOutputStream()
        pq.write_table(table.select(names), sink, compression=self.compression or "none", **self.write_options)
        return memoryview(sink.getvalue())
