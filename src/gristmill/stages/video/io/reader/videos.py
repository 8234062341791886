"""Videos of folders and manifests: which there are, and what their containers say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gristmill.errors import PlanError
from gristmill.stages.core import CompositeStage, ProcessingStage
from gristmill.stages.hints import TaskType
from gristmill.stages.image.io.reader.media import MediaReader
from gristmill.stages.image.io.reader.options import FILES, TABLES
from gristmill.stages.protocols import Paths
from gristmill.stages.registry import builtin, builtin_internal
from gristmill.stages.text.io.listing import File, Listing, list_input
from gristmill.stages.text.io.reader.sample import InputSample
from gristmill.stages.video.rows import VideoStage, locations, without_bad
from gristmill.storage import plain_errors
from gristmill.tasks import DocumentBatch, FileBlock, FileGroupTask, FileRange
from gristmill.tasks.document import ID
from gristmill.tasks.video import AUDIO_CODEC, DURATION, FPS, PIXEL_FORMAT, VIDEO, VIDEO_CODEC, VIDEO_ID, VideoTask
from gristmill.videos.errors import BadVideo
from gristmill.videos.source import MAX_PIXELS

if TYPE_CHECKING:
    from gristmill.stages.image.io.reader.sources import ImageSource

KINDS = ("files", "parquet", "manifest")
PROBE_TIMEOUT_S = 300.0


@builtin_internal
@dataclass(eq=False, repr=False)
class VideoFilesReader(MediaReader):
    """The first stage of `VideoReader`: a task for each video, with its place and name. It opens no video."""

    file_paths: Paths | None = None
    kind: str | None = None
    path_field: str | None = None
    fields: list[str] | None = None
    files_per_partition: int | None = None
    blocksize: Any = None
    limit: int | None = None
    sample: float | None = None
    read_kwargs: dict[str, Any] | None = None

    name = "VideoReader"
    loads = ("gristmill.stages.video.io.reader.sources",)

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, not {self.kind!r}.")
        sizes = (self.files_per_partition, self.blocksize)
        super().__init__(self.file_paths, *sizes, self.fields, self.read_kwargs, None, self.limit, self.sample)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [VIDEO, VIDEO_ID, *(self.fields or [])]

    def output_type(self) -> TaskType | None:
        return VideoTask

    def check_needs(self) -> None:
        if find_spec("av") is None:
            raise PlanError(f"{self.name!r} needs PyAV to read videos: pip install 'gristmill[video]'.")

    def preload(self) -> None:
        from gristmill.stages.video.io.reader import sources  # noqa: F401  # shared by all workers

    def _source_of(self, one: FileRange | File | None) -> ImageSource:
        from gristmill.stages.image.io.reader.folders import FolderRange
        from gristmill.stages.image.io.reader.options import ImageOptions
        from gristmill.stages.video.io.reader.sources import VideoFolders, VideoTables, kind_of

        path = "" if one is None else one.path
        kind = FILES if isinstance(one, FolderRange) or path.endswith("/") else self.kind or kind_of(path)
        if kind == FILES:
            return VideoFolders(self, ImageOptions(), self._folders)
        assert self._columns is not None, "source() has found the columns"
        return VideoTables(self, self._rows(kind), self._columns, self.fields)

    def listed(self) -> Listing:
        from gristmill.stages.video.io.reader.sources import EXTENSIONS

        ends = [end for kind, ends in EXTENSIONS.items() if self.kind in (None, kind) for end in ends]
        assert self.file_paths is not None
        listing = list_input(self.file_paths, ends, self.options)
        listing.others.clear()  # the user has chosen between them
        return listing

    def files_of(self, listing: Listing) -> list[File]:
        from gristmill.stages.video.io.reader.sources import columns_of, folders_of, kind_of, one_kind

        files = listing.files
        kind = self.kind or one_kind(files, self.name)
        self._columns, self._folders = None, ()
        if kind == FILES:
            # a file that was named is read whatever its name
            tables = [file for file in files if kind_of(file.path) not in (None, FILES)]
            self._folders = folders_of([file for file in files if file not in tables])
            if not self._folders:
                raise PlanError(f"{self.name!r}: the input holds no video.")
            return [folder.as_file() for folder in self._folders]
        files = [file for file in files if self.kind or kind_of(file.path) == kind]
        with plain_errors(files[0].path, self.options):
            self._columns = columns_of(files, kind == TABLES, self.path_field, self.options, self.name)
        return files

    def samples_of(self, parts: Sequence[FileRange], sizes: Mapping[str, int], size: int) -> list[InputSample]:
        from gristmill.tasks.document import joined

        middle, stored = self.middle_of(parts, sizes)

        def read() -> DocumentBatch:
            return joined(list(self._source_of(middle).batches([middle])))

        return [InputSample(read, lambda batch: sum(sizes.values()) / max(1, stored))]


@builtin_internal
class VideoProbeStage(VideoStage):
    """The second stage of `VideoReader`: it opens each video, and adds what the container says.

    Videos that cannot be used are bad records.
    """

    timeout_s = PROBE_TIMEOUT_S

    def __init__(self, max_pixels: int = MAX_PIXELS) -> None:
        if type(max_pixels) is not int or max_pixels < 1:
            raise ValueError(f"max_pixels must be a whole number above 0, not {max_pixels!r}.")
        self.max_pixels = max_pixels

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [VIDEO, VIDEO_ID]

    def outputs(self) -> tuple[list[str], list[str]]:
        from gristmill.stages.video.io.reader.sources import CONTAINER_COLUMNS

        return ["data"], [VIDEO, VIDEO_ID, *CONTAINER_COLUMNS]

    def process(self, task: VideoTask) -> VideoTask:
        import pyarrow as pa

        from gristmill.stages.video.io.reader.sources import CONTAINER_COLUMNS
        from gristmill.videos.probe import VideoInfo, probe

        found: list[VideoInfo] = []
        problems: dict[int, BadVideo] = {}
        for row, location in enumerate(locations(task)):
            try:
                found.append(probe(location, self.storage, max_pixels=self.max_pixels))
            except BadVideo as error:
                problems[row] = error
        task = without_bad(task, problems)
        account = task.take_account()
        table = task.data
        texts = (VIDEO_CODEC, PIXEL_FORMAT, AUDIO_CODEC)
        plain = [
            (one.width, one.height, one.rotation, one.fps, one.frames, one.duration_s, *_texts(one)) for one in found
        ]
        for place, name in enumerate(CONTAINER_COLUMNS):
            kind = pa.large_string() if name in texts else pa.float64() if name in (FPS, DURATION) else pa.int64()
            where = table.column_names.index(ID)
            if name in table.column_names:
                table = table.drop_columns([name])
                where -= 1
            table = table.add_column(where, pa.field(name, kind), pa.array([row[place] for row in plain], kind))
        made = task._with_data(table)
        made.account = account
        return made


def _texts(one: Any) -> tuple[Any, ...]:
    return (one.video_codec, one.pixel_format, one.audio_codec, one.video_bytes)


@builtin
@dataclass(eq=False, repr=False)
class VideoReader(CompositeStage[FileBlock | FileGroupTask, VideoTask]):
    """Videos of folders, files and manifests: a row for each, with its place and what the container says.

    ``file_paths`` is a file, a folder, a glob, a URL or a list of these. What they hold decides how they are read: if
    it is not of one kind, ``kind`` names what is read: "files", "parquet" or "manifest". A manifest is a JSONL or
    Parquet file with a field of paths or URLs, ``path_field``; without it, usual names are looked for. Relative paths
    are below the folder of the manifest. Its other fields are kept, or only those of ``fields``.

    A video with more than ``max_pixels`` pixels in a frame, and one that cannot be opened or decoded, is a bad record.
    ``blocksize``, ``files_per_partition``, ``limit``, ``sample`` and ``read_kwargs`` are as for `JsonlReader`.
    ``input_video_path`` and ``video_limit`` are NeMo Curator's names of ``file_paths`` and ``limit``.
    """

    file_paths: Paths | None = None
    kind: str | None = None
    path_field: str | None = None
    fields: list[str] | None = None
    files_per_partition: int | None = None
    blocksize: Any = None
    """A number of bytes, or a text such as "256MB"."""
    limit: int | None = None
    sample: float | None = None
    max_pixels: int = MAX_PIXELS
    read_kwargs: dict[str, Any] | None = None
    input_video_path: Paths | None = None
    video_limit: int | None = None

    def __post_init__(self) -> None:
        if self.file_paths is not None and self.input_video_path is not None:
            raise ValueError("give file_paths or input_video_path, not both: they are the same.")
        if self.limit is not None and self.video_limit is not None:
            raise ValueError("give limit or video_limit, not both: they are the same.")
        self.decompose()  # wrong arguments are errors here

    def input_type(self) -> TaskType | None:
        return FileBlock | FileGroupTask

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        paths = self.file_paths if self.input_video_path is None else self.input_video_path
        limit = self.limit if self.video_limit is None else self.video_limit
        sizes = (self.files_per_partition, self.blocksize)
        files = VideoFilesReader(
            paths, self.kind, self.path_field, self.fields, *sizes, limit, self.sample, self.read_kwargs
        )
        return [files, VideoProbeStage(self.max_pixels)]


@builtin
class VideoReaderStage(VideoReader):
    """`VideoReader` under the name that NeMo Curator has for it."""
