"""Clips as files, with previews, metadata and embeddings, and a Parquet index of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gristmill.images.shards import key_of
from gristmill.stages.image.io.writer.webdataset import is_vector, json_of, npy_of
from gristmill.stages.protocols import Sink
from gristmill.stages.registry import builtin
from gristmill.stages.text.io.writer.parquet import ParquetWriter
from gristmill.stages.video.clips import bytes_of
from gristmill.stages.video.rows import without_bad
from gristmill.storage import local_path
from gristmill.tasks import DocumentBatch, FileGroupTask, Written
from gristmill.tasks.document import HIDDEN, ID
from gristmill.tasks.names import part_name
from gristmill.tasks.video import CLIP, CLIP_ID, PREVIEW, VIDEO_ID
from gristmill.videos.errors import BadVideo

if TYPE_CHECKING:
    import pyarrow as pa

CLIPS, PREVIEWS, METAS, EMBEDDINGS = "clips", "previews", "metas/v0", "embeddings"
"""The folders of an output."""
CLIP_PATH, PREVIEW_PATH, CLIP_BYTES = "clip_path", "preview_path", "clip_bytes"
"""Columns of the index: where the files of a clip are, from the output folder, and the size of the clip."""
_CONTAINERS = ((4, b"ftyp", ".mp4"), (0, b"\x1aE\xdf\xa3", ".webm"), (0, b"RIFF", ".avi"), (0, b"G", ".ts"))
"""Bytes of the containers of clips, where they are, and the extension of the files."""


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class ClipWriterStage(ParquetWriter):
    """Clips as files in the folder ``path`` (or ``output_path``), and a Parquet index of them.

    - ``clips/``: the encoded bytes of each clip as they are, with the extension of their container;
    - ``previews/``: the preview of each clip, if `PreviewStage` made one;
    - ``metas/v0/``: what is known of each clip as JSON, without vectors;
    - ``embeddings/`` with ``generate_embeddings``: each vector as a file of NumPy;
    - ``part-*.parquet``, the index: a row for each clip with ``clip_path``, ``preview_path``, ``clip_bytes`` and all
      other columns, vectors among them, but for encoded bytes and frames.

    A file is named by its task and the clip's id, such as ``clips/part-000003.film_mp4-0_5-b87dc2.mp4``. So any number
    of workers writes the same files, and a run that resumes, is verified or starts over knows which files are its own.

    ``upload_clips``, ``generate_previews`` and ``generate_metadata`` switch these files off, ``dry_run`` all but the
    index. ``fields`` limits the columns of index and metadata. A worker writes up to ``max_workers`` files at the same
    time to a remote storage. Dropped clips are rows of Parquet files in
    ``excluded/``: with ``excluded_clips`` also their encoded bytes. ``excluded``, ``compression``, ``write_kwargs``,
    ``schema`` and ``scores`` are as for `ParquetWriter`. Other arguments are accepted for pipelines of NeMo Curator.
    """

    indifferent = (
        *("scores", "input_path", "generate_captions", "embedding_algorithm", "caption_models"),
        *("enhanced_caption_models", "verbose", "max_workers", "log_stats"),
    )
    loads = ("gristmill.stages.text.io.writer.lines", "pyarrow.parquet")

    path: str = field(default="", kw_only=False)
    output_path: str = ""
    upload_clips: bool = True
    generate_previews: bool = True
    generate_metadata: bool = True
    generate_embeddings: bool = False
    dry_run: bool = False
    fields: list[str] | None = None
    compression: str | None = "zstd"
    excluded: bool | float = True
    excluded_clips: bool = False
    write_kwargs: dict[str, Any] | None = None
    schema: dict[str, str] = field(default_factory=dict)
    scores: bool = True
    input_path: str | None = None
    generate_captions: bool = True
    embedding_algorithm: str = "cosmos-embed1"
    caption_models: Sequence[str] | None = None
    enhanced_caption_models: Sequence[str] | None = None
    verbose: bool = False
    max_workers: int = 6
    log_stats: bool = False

    def __post_init__(self) -> None:
        if type(self.max_workers) is not int or self.max_workers < 1:
            raise ValueError(f"max_workers must be a whole number of 1 or more, not {self.max_workers!r}.")
        if bool(self.path) == bool(self.output_path):
            raise ValueError("path (or output_path) names the folder of the output: give one of them.")
        self.wanted = self.fields
        known = None if self.fields is None else [CLIP_ID, *self.fields, CLIP_PATH, CLIP_BYTES, PREVIEW_PATH]
        ParquetWriter.__init__(
            self,
            self.path or self.output_path,
            known,
            self.compression,
            self.excluded,
            self.write_kwargs,
            self.schema,
            self.scores,
        )
        made = {
            CLIPS: (self.upload_clips, [one for *_, one in _CONTAINERS]),
            PREVIEWS: (self.generate_previews, [".webp"]),
            METAS: (self.generate_metadata, [".json"]),
            EMBEDDINGS: (self.generate_embeddings, [".npy"]),
        }
        self.folders = {place: ends for place, (is_made, ends) in made.items() if is_made and not self.dry_run}

    def preload(self) -> None:
        from gristmill.kernels import json_lines
        from gristmill.kernels.compile import preload

        super().preload()
        preload([json_lines.GATHER, json_lines.ESCAPED_SIZE, json_lines.ESCAPE])
        if local_path(self.path) is None:
            import fsspec.core  # noqa: F401  # slow to import, and shared by all workers

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [CLIP] if CLIPS in self.folders else []

    def looks_at(self) -> list[str]:
        return [CLIP_ID, VIDEO_ID, PREVIEW]

    def columns_needed(self) -> list[str] | None:
        return None if self.wanted is None else list(dict.fromkeys([*self.inputs()[1], *self.wanted]))

    @cached_property
    def excluded_writer(self) -> Sink[Any, Any]:
        options = {"storage_options": self.storage_options}
        return _ExcludedClips(self.path, [CLIP] if self.excluded_clips else [], options)

    def process(self, task: DocumentBatch) -> FileGroupTask:
        written = FileGroupTask(dataset_name=task.dataset_name)
        if CLIPS in self.folders:
            bad = {row: problem for row, data in enumerate(bytes_of(task, CLIP)) if (problem := _problem(data))}
            if bad:
                task = without_bad(task, bad)
                written.account.bad += task.account.bad
        stems = [f"{part_name(task.task_id, '')}.{key}" for key in _keys(task)]
        index = self._indexed(task, stems)
        written.account.written += self._write(self._files(task, stems, index))
        name, data = part_name(task.task_id, self.extension), self._rendered(index)
        written.data.append(self.folder.full_path(name))
        written.account.written.append(Written(name, index.num_rows, len(data), self.folder.write(name, data)))
        return written

    def _write(self, files: Iterator[tuple[str, Any]]) -> Iterator[Written]:
        """Write files: one after the other here, several at a time elsewhere, where each takes a round trip."""

        def write(file: tuple[str, Any]) -> Written:
            name, data = file
            return Written(name, 0, len(data), self.folder.write(name, data))

        if self.folder.is_local:
            yield from map(write, files)
            return
        with ThreadPoolExecutor(self.max_workers, thread_name_prefix="gristmill-clips") as pool:
            yield from pool.map(write, files)

    def render(self, table: pa.Table, extra: Sequence[str] = ()) -> bytes:
        return super().render(without_bytes(table), extra)

    def _indexed(self, task: DocumentBatch, stems: Sequence[str]) -> pa.Table:
        """The rows of the index: the clips without their bytes, with the names of their files."""
        import pyarrow as pa

        table = task.to_pyarrow()
        made = without_bytes(table)
        for name, paths in self._paths(task, stems).items():
            column = pa.array(paths, pa.int64() if name == CLIP_BYTES else pa.large_string())
            made = made.drop_columns([name]) if name in made.column_names else made
            made = made.append_column(name, column)
        return made

    def _paths(self, task: DocumentBatch, stems: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        found: dict[str, Sequence[Any]] = {}
        if CLIPS in self.folders:
            clips = bytes_of(task, CLIP)
            kinds = [_extension(data) for data in clips]
            found[CLIP_PATH] = [f"{CLIPS}/{stem}{kind}" for stem, kind in zip(stems, kinds, strict=True)]
            found[CLIP_BYTES] = [None if data is None else len(data) for data in clips]
        if PREVIEWS in self.folders and PREVIEW in task.data.column_names:
            previews = bytes_of(task, PREVIEW)
            found[PREVIEW_PATH] = [
                f"{PREVIEWS}/{stem}.webp" if data is not None else None
                for stem, data in zip(stems, previews, strict=True)
            ]
        return found

    def _files(self, task: DocumentBatch, stems: Sequence[str], index: pa.Table) -> Iterator[tuple[str, Any]]:
        """Yield the files of clips: names and content. Bytes are not copied."""
        for path, column in ((CLIP_PATH, CLIP), (PREVIEW_PATH, PREVIEW)):
            if path in index.column_names and column in task.data.column_names:
                names = index.column(path).to_pylist()
                yield from (
                    (name, data)
                    for name, data in zip(names, bytes_of(task, column), strict=True)
                    if name is not None and data is not None
                )
        vectors = [one.name for one in index.schema if is_vector(one.type)]
        if METAS in self.folders:
            shown = [name for name in index.column_names if name not in (*HIDDEN, *vectors)]
            if self.fields is not None:
                shown = [name for name in self.fields if name in shown]
            for stem, line in zip(stems, json_of(index, shown), strict=True):
                yield f"{METAS}/{stem}.json", line
        if EMBEDDINGS in self.folders:
            yield from _vectors(index, vectors, stems)


class _ExcludedClips(ParquetWriter, builtin=True):
    """Dropped clips: without bytes and frames, but for the columns that are named."""

    def __init__(self, path: str, keeps: Sequence[str], write_kwargs: dict[str, Any]) -> None:
        super().__init__(path, write_kwargs=write_kwargs)
        self.keeps = keeps

    def render(self, table: pa.Table, extra: Sequence[str] = ()) -> bytes:
        return super().render(without_bytes(table, self.keeps), extra)


def without_bytes(table: pa.Table, keeps: Sequence[str] = ()) -> pa.Table:
    """Return a table without columns of bytes, or lists of them, and of pixels: encoded clips, frames, previews."""
    return table.drop_columns([one.name for one in table.schema if one.name not in keeps and _is_heavy(one.type)])


def _is_heavy(kind: pa.DataType) -> bool:
    import pyarrow as pa

    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
        if pa.types.is_uint8(kind):
            return True
    if pa.types.is_struct(kind):
        return any(_is_heavy(kind.field(number).type) for number in range(kind.num_fields))
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)


def _keys(task: DocumentBatch) -> Iterator[str]:
    """Yield a key for each clip, made of its id. A second clip with the id of another one of the task gets a number."""
    table = task.to_pyarrow()
    name = next((name for name in (CLIP_ID, VIDEO_ID, ID) if name in table.column_names), None)
    idents = [str(row) for row in range(table.num_rows)] if name is None else table.column(name).to_pylist()
    seen: Counter[str] = Counter()
    for ident in idents:
        key = key_of(str(ident), str(ident))
        seen[key] += 1
        yield key if seen[key] == 1 else f"{key}-{seen[key]}"


def _problem(data: memoryview | None) -> BadVideo | None:
    """Why these bytes are no clip that can be written; None if they are one."""
    if data is None:
        return BadVideo("no clip")
    if not len(data):
        return BadVideo("empty")
    return None if _extension(data) else BadVideo("not a video of a known format")


def _extension(data: memoryview | None) -> str:
    if data is None:
        return ""
    head = bytes(data[:12])
    return next((kind for place, mark, kind in _CONTAINERS if head[place : place + len(mark)] == mark), "")


def _vectors(index: pa.Table, names: Sequence[str], stems: Sequence[str]) -> Iterator[tuple[str, Any]]:
    from gristmill.tasks.arrow import one_array

    for name in names:
        suffix = "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in name)
        for stem, vector in zip(stems, one_array(index.column(name)), strict=True):
            if vector.is_valid:
                yield f"{EMBEDDINGS}/{stem}-{suffix}.npy", npy_of(vector)


__all__ = ["ClipWriterStage"]
