"""JSON objects, one per line."""

from __future__ import annotations

import bz2
import os
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from gristmill.errors import PlanError
from gristmill.stages.protocols import Stages
from gristmill.stages.registry import builtin
from gristmill.stages.text.io.compression import EXTENSION
from gristmill.stages.text.io.writer.base import FileWriter
from gristmill.storage import local_path
from gristmill.tasks import ImageBatch
from gristmill.tasks.document import RAW
from gristmill.tasks.image import IMAGE

if TYPE_CHECKING:
    import pyarrow as pa

    from gristmill.tasks import DocumentBatch

NO_IMAGES = """holds encoded images, which JSON cannot hold.
    use ImageWriter (WebDataset shards) or ParquetWriter, or leave the column out: fields=['image_id', 'caption']."""
LEVELS = {"gzip": 6, "zstd": 3, "bz2": 9}


@builtin
class JsonlWriter(FileWriter):
    """One JSONL file for each batch, in the folder ``path``, named by the task.

    A document that was read from JSONL and that no stage changed is written as it was, byte for byte. Values that
    changed take the place of the old ones, new columns come at the end of the line; a null in a column adds nothing
    about a field that the line does not have. A column that a stage drops leaves the line; one that it renames is
    written under its new name. With ``fields`` only these are written, in this order.

    ``compression`` is "gzip", "zstd" or "bz2", with ``write_kwargs={"compression_level": n}``. ``excluded`` sets
    whether documents that are dropped are written beside the output, or which fraction of them. ``scores`` sets whether
    the scores of rules are stored beside it, for `gristmill what-if`.
    """

    loads = ("gristmill.stages.text.io.writer.lines",)
    splices_lines = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: Sequence[str] | None = None,
        compression: str | None = None,
        excluded: bool | float = True,
        write_kwargs: dict[str, Any] | None = None,
        scores: bool = True,
    ) -> None:
        options = self._set_arguments(path, fields, excluded, scores, write_kwargs, ("compression_level",))
        if compression is not None and compression not in LEVELS:
            raise ValueError(f"compression must be one of {', '.join(map(repr, LEVELS))} or None, not {compression!r}.")
        self.compression = compression
        self.level: int = options.get("compression_level", LEVELS.get(compression or "", 0))
        self.extension = ".jsonl" + EXTENSION.get(compression or "", "")

    def linked(self, before: Stages, after: Stages) -> Self:
        is_gone = any(IMAGE in stage.removes() or stage.only_outputs for stage in before)
        has_images = bool(before) and before[0].output_type() == ImageBatch
        if has_images and (not is_gone if self.fields is None else IMAGE in self.fields):
            raise PlanError(f"{self.name!r}: the column {IMAGE!r} {NO_IMAGES}")
        return super().linked(before, after)

    def preload(self) -> None:
        from gristmill.kernels import json_lines
        from gristmill.kernels.compile import preload

        strings = [json_lines.ESCAPED_SIZE, json_lines.ESCAPE]
        preload([json_lines.SCAN, json_lines.GATHER, json_lines.JOIN_LINES, *strings])
        if local_path(self.path) is None:
            import fsspec.core  # noqa: F401  # slow to import, and shared by all workers

    def _of_batch(self, task: DocumentBatch) -> Any:
        from gristmill.stages.text.io.raw_lines import Edges
        from gristmill.stages.text.io.writer.lines import joined
        from gristmill.tasks.arrow import one_array

        table, rows = task.selection()
        if rows is None or not self._is_as_read(table):
            return super()._of_batch(task)
        lines = Edges.of_column(one_array(table.column(RAW)))
        return self._compressed(joined(Edges(lines.data, lines.starts[rows], lines.ends[rows])))

    def _is_as_read(self, table: pa.Table) -> bool:
        """Whether all documents of a table are written as the lines that they were read from."""
        from gristmill.stages.text.io.json_columns import was_read

        visible = self._visible(table)
        return (
            RAW in table.column_names
            and not table.column(RAW).null_count
            and self.touched is not None
            and self.fields is None
            and not self.narrowed
            and not self.removed.difference(visible)
            and all(name not in self.touched and was_read(table.schema.field(name)) for name in visible)
        )

    def _rendered(self, table: pa.Table, extra: Sequence[str] = ()) -> Any:
        return self._compressed(self._lines(table, self._written(extra)))

    def _compressed(self, lines: Any) -> Any:
        match self.compression:
            case "gzip":  # without name and time: the same documents make the same bytes
                return zlib.compress(lines, self.level, wbits=31)
            case "bz2":
                return bz2.compress(lines, self.level)
            case "zstd":
                import pyarrow as pa

                return pa.Codec("zstd", compression_level=self.level).compress(lines, asbytes=True)
        return lines

    def _lines(self, table: pa.Table, fields: list[str] | None) -> Any:
        from gristmill.stages.text.io.raw_lines import Edges, without
        from gristmill.stages.text.io.writer.lines import edited, joined, made
        from gristmill.tasks.arrow import one_array

        if table.num_rows == 0:
            return b""
        visible = self._visible(table)
        if RAW not in table.column_names:
            names = visible if fields is None else [name for name in fields if name in visible]
            return joined(made(table.select(names)))
        raw = one_array(table.column(RAW))
        trusted: set[str] = set()
        if raw.null_count:  # made by a stage: all that they are is in the columns
            raw = raw.fill_null(b"{}")
        elif self.touched is not None:
            trusted = {name for name in visible if name not in self.touched}
        if self.narrowed and fields is None:
            fields = visible
        lines = without(Edges.of_column(raw), self.removed.difference(visible))
        return joined(edited(lines, table.select(visible), trusted, fields))
