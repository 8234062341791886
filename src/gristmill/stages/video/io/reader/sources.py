"""The kinds of input, each as rows that name videos: video files in folders, and tables of paths and URLs."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gristmill.errors import PlanError
from gristmill.images.errors import BadImage
from gristmill.secrets import public_url, without_query
from gristmill.stages.image.io.reader.folders import FileTable, FolderRange, ImageFolder
from gristmill.stages.image.io.reader.options import FILES, MANIFESTS, TABLES, ImageOptions
from gristmill.stages.image.io.reader.sources import FolderSource, TableSource
from gristmill.stages.image.io.reader.tables import ID_NAMES, TEXT, TableColumns, fields_of, place_of, texts_of
from gristmill.stages.text.io import stamps
from gristmill.stages.text.io.formats import JSONL, PARQUET
from gristmill.stages.text.io.listing import File
from gristmill.stages.text.io.reader.batches import SHOWN_BYTES
from gristmill.storage import local_path
from gristmill.tasks import Account, BadRecord, DocumentBatch, FileBlock, FileRange
from gristmill.tasks.document import HIDDEN, ID, LOCATION
from gristmill.tasks.video import (
    AUDIO_CODEC,
    CLIP,
    CLIP_ID,
    DURATION,
    END,
    FPS,
    FRAMES,
    HEIGHT,
    PIXEL_FORMAT,
    ROTATION,
    START,
    VIDEO,
    VIDEO_BYTES,
    VIDEO_CODEC,
    VIDEO_ID,
    WIDTH,
    VideoTask,
)

if TYPE_CHECKING:
    from gristmill.stages.text.io.reader.base import FileReader

VIDEO_ENDINGS = (
    *("mp4", "m4v", "mov", "qt", "mkv", "webm", "avi", "mpg", "mpeg", "m2v", "mpe", "ts", "mts", "m2ts", "vob", "flv"),
    *("wmv", "asf", "ogv", "ogg", "3gp", "3g2", "mxf", "mj2", "nut", "ivf", "dv", "rm", "rmvb", "divx", "f4v"),
)
"""The ends of the names of videos, in lower case. What a video is, is decided by its content."""
EXTENSIONS = {
    FILES: tuple(f".{end}" for end in VIDEO_ENDINGS),
    TABLES: tuple(PARQUET.extensions),
    MANIFESTS: tuple(JSONL.extensions),
}
"""By kind of input, the ends of the names of its files."""
WORDS = {FILES: "video files", TABLES: "Parquet files", MANIFESTS: "JSONL manifests"}
PATH_NAMES = (
    *(VIDEO, "video_path", "path", "file_name", "filename", "filepath", "file_path", "video_file", "file"),
    *("video_url", "url", "URL", "uri", "contentUrl"),
)
VIDEO_ID_NAMES = (VIDEO_ID, "videoid", *ID_NAMES[1:])
CONTAINER_COLUMNS = (
    *(WIDTH, HEIGHT, ROTATION, FPS, FRAMES, DURATION, VIDEO_CODEC, PIXEL_FORMAT, AUDIO_CODEC, VIDEO_BYTES),
)
"""What the container says of a video, in the order of the columns."""
OWN = (VIDEO, VIDEO_ID, *CONTAINER_COLUMNS, CLIP_ID, START, END, CLIP, *HIDDEN)
ORIGINAL = "original_"
"""Begins the name of a field of a table whose own name is that of a column of each video or clip."""
NO_VIDEO = "no path or URL"


def kind_of(path: str) -> str | None:
    """The kind of input that a file is, by its name; None if it is none."""
    name = without_query(path).lower()
    return next((kind for kind, ends in EXTENSIONS.items() if name.endswith(ends)), None)


def one_kind(files: Sequence[File], reader: str) -> str:
    """The kind of all files. Raise `PlanError` if there are several, so that no video is read twice or left out."""
    counts = Counter(kind for file in files if (kind := kind_of(file.path)) is not None)
    if not counts:
        raise PlanError(f"{reader!r}: the input holds no video, Parquet file or JSONL manifest.")
    if len(counts) > 1:
        there = " and ".join(f"{count:,} {WORDS[kind]}" for kind, count in counts.items())
        choices = " or ".join(f"kind={kind!r}" for kind in counts)
        raise PlanError(
            f"{reader!r}: the input holds {there}: it is not clear what is to be read.\n"
            f"    name the files, or set {choices}."
        )
    return next(iter(counts))


def folders_of(files: Sequence[File]) -> list[ImageFolder]:
    """The videos by folder, sorted."""
    by_folder: dict[str, list[File]] = {}
    for file in sorted(files, key=lambda file: (posixpath.dirname(file.path), posixpath.basename(file.path))):
        by_folder.setdefault(posixpath.dirname(file.path), []).append(file)
    found = []
    for path, there in by_folder.items():
        shown = posixpath.dirname(there[0].name)
        urls = {posixpath.basename(file.path): file.url for file in there if file.url}
        prefix = f"{shown}/" if shown else ""
        found.append(ImageFolder(path.rstrip("/") + "/", prefix, FileTable.of(there), urls=urls))
    return found


def columns_of(
    files: Sequence[File], is_parquet: bool, path_field: str | None, storage: Mapping[str, Any], reader: str
) -> TableColumns:
    """Choose the columns of paths and ids by the first file that has some. Raise `PlanError` if there is none."""
    for file in files:
        fields = fields_of(file, is_parquet, storage)
        if not fields:
            continue
        there = ", ".join(sorted(fields)[:20])
        if path_field is not None and path_field not in fields:
            raise PlanError(f"{reader!r}: {file.path} has no field {path_field!r} for path_field; it has: {there}.")
        path = path_field or next((name for name in PATH_NAMES if fields.get(name) == TEXT), None)
        if path is None:
            raise PlanError(
                f"{reader!r}: {file.path} has no field of paths or URLs that is known; it has: {there}.\n"
                "    Set path_field=..."
            )
        ident = next((name for name in VIDEO_ID_NAMES if name in fields and name != path), None)
        return TableColumns(None, path, None, ident)
    return TableColumns(None, path_field or PATH_NAMES[0], None, VIDEO_ID)


def row_of(location: str, name: str, ident: str, metadata: pa.Table | None = None) -> VideoTask:
    """A task of one video."""
    shown = public_url(location)
    text = pa.large_string()
    made = {VIDEO: pa.array([shown], text), VIDEO_ID: pa.array([name], text)}
    if metadata is not None:
        made |= {_free(name, metadata.column_names): metadata.column(name) for name in metadata.column_names}
    made[ID] = pa.array([ident], text)
    if location != shown:
        made[LOCATION] = pa.array([location], text)
    return VideoTask(data=pa.table(made))


def no_rows() -> VideoTask:
    """A task without videos, which brings an account."""
    text = pa.large_string()
    return VideoTask(data=pa.table({name: pa.array([], text) for name in (VIDEO, VIDEO_ID, ID)}))


def _free(name: str, taken: Sequence[str]) -> str:
    if name not in OWN:
        return name
    name = ORIGINAL + name
    while name in taken:
        name = ORIGINAL + name
    return name


class VideoFolders(FolderSource):
    """Video files, planned and counted by folder. Each becomes a task."""

    def makes_several_batches(self, part: FileRange) -> bool:
        return True

    def batches(self, ranges: Sequence[FileRange]) -> Iterator[Any]:
        """Yield a task for each video that is taken, one at least."""
        from gristmill.stages.text.io.reader.choice import NOT_SAMPLED

        account = Account()
        for part in ranges:
            assert isinstance(part, FolderRange)
            folder = part.folder
            account.read[folder.path] += 0
            for row in range(part.start - folder.first, part.stop - folder.first):
                if not self._chosen(folder, row):
                    account.counters[NOT_SAMPLED] += 1
                    continue
                name = folder.images.names[row]
                path = folder.path + name
                if local_path(path) is not None:
                    stamps.check_path(path, folder.images.stamp(row), self.reader.options)
                task = row_of(folder.urls.get(name) or path, folder.shown + name, f"{path}#0")
                account.read[folder.path] += 1
                task.account, account = account, Account()
                yield task
        if account != Account():
            empty = no_rows()
            empty.account = account
            yield empty


class VideoTables(TableSource):
    """Rows of Parquet files or manifests that name videos. Each becomes a task, with its other fields as columns."""

    def __init__(self, reader: FileReader, rows: FileReader, columns: TableColumns, fields: list[str] | None) -> None:
        super().__init__(reader, ImageOptions(fields=fields), rows, columns)

    def batches(self, ranges: Sequence[FileRange]) -> Iterator[Any]:
        """Yield a task for each video, one at least."""
        for part in ranges:  # paths are relative to their file
            read: Any = self.rows.process(FileBlock([part], task_id="0"))
            for rows in [read] if isinstance(read, DocumentBatch) else read:
                yield from self._of_rows(rows, part)

    def _of_rows(self, rows: DocumentBatch, part: FileRange) -> Iterator[VideoTask]:
        account = rows.take_account() or Account()
        table = rows.data
        account.read[part.path] -= table.num_rows  # each is counted with the task that holds it
        assert self.columns.path is not None
        places = texts_of(table, self.columns.path)
        idents = table.column(ID).to_pylist() if table.num_rows else []
        given = [None] * table.num_rows if self.columns.ident is None else texts_of(table, self.columns.ident)
        names = self._metadata_names(table)
        for row, (place, ident, name) in enumerate(zip(places, idents, given, strict=True)):
            account.read[part.path] += 1
            location = BadImage(NO_VIDEO) if not place else place_of(place, part.location)
            if isinstance(location, BadImage):
                file, _, position = ident.rpartition("#")
                raw = public_url(place or "").encode("utf-8", "backslashreplace")[:SHOWN_BYTES]
                account.bad.append(BadRecord(file, int(position), str(location), raw))
                continue
            task = row_of(location, name or public_url(place or ""), ident, table.select(names).slice(row, 1))
            task.account, account = account, Account()
            yield task
        if account != Account():
            empty = no_rows()
            empty.account = account
            yield empty

    def _metadata_names(self, table: pa.Table) -> list[str]:
        used = {name for name in (self.columns.path, self.columns.ident) if name in (VIDEO, VIDEO_ID)}
        there = [name for name in table.column_names if name not in HIDDEN and name not in used]
        wanted = self.options.fields
        return there if wanted is None else [name for name in wanted if name in there]
