"""The clips of a batch, each decoded once for all that look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gristmill.lazy import Array, np
from gristmill.stages.hints import TaskType
from gristmill.stages.video.rows import VideoStage, without_bad
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import LOCATION
from gristmill.tasks.video import CLIP, END, START, VIDEO
from gristmill.videos.decode import frames
from gristmill.videos.errors import BadVideo
from gristmill.videos.motion import Motion, motion_of
from gristmill.videos.probe import VideoInfo, probe
from gristmill.videos.source import Location

SAMPLES = 8
"""Frames that filters look at: those in the middle of as many equal parts of a clip."""
SHORT_SIDE = 256
"""The short side to which they are reduced."""
KEPT_BYTES = 128 << 20
"""Decoded frames of one batch that are kept. Those of further clips are decoded again each time they are used."""

NOTHING, INFO, FRAMES, MOTION = "nothing", "info", "frames", "motion"
"""What can be read of a clip: nothing but the table, what its container says, some frames, how much moves."""


@dataclass(frozen=True, slots=True)
class ClipPlace:
    """Where a clip is: its bytes, or a video and times in it."""

    location: Location
    start_s: float = 0.0
    end_s: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the storage of a video."""

    def info(self) -> VideoInfo:
        """What the container says."""
        return probe(self.location, self.options)

    def frames(self, count: int = SAMPLES, short_side: int = SHORT_SIDE, info: VideoInfo | None = None) -> Array:
        """Return frames in the middle of equal parts of the clip: uint8, (frames, height, width, 3), RGB, upright."""
        info = info or self.info()
        return np.stack(self.shown(count, reduced(info.height, info.width, short_side), info))

    def shown(self, count: int, size: tuple[int, int], info: VideoInfo) -> list[Array]:
        """Return the same as a list, with frames of this height and width."""
        length = max(0.0, (info.duration_s if self.end_s is None else self.end_s) - self.start_s)
        times = [self.start_s + (number + 0.5) / count * length for number in range(count)]
        found = frames(self.location, times=times, size=size, resize="area", options=self.options)
        made = [one.pixels for one in found]
        if not made:
            raise BadVideo("no frames")
        return made

    def motion(self, target_fps: float = 2.0, target_duration_ratio: float = 1.0) -> Motion:
        """Measure the motion, see `motion_of`."""
        return motion_of(
            self.location,
            self.start_s,
            self.end_s,
            target_fps=target_fps,
            target_duration_ratio=target_duration_ratio,
            options=self.options,
        )


class Clips:
    """The clips of a batch, in their order, and what was read of them. All of them can be read.

        batch, clips = Clips.of(batch, FRAMES)

    It is kept in the cache of the batch, so the stages of one step share it.
    """

    def __init__(self, places: Sequence[ClipPlace]) -> None:
        self.places = list(places)
        self._infos: dict[int, VideoInfo] = {}
        self._motions: dict[int, Motion] = {}
        self._frames: dict[int, Array] = {}
        self._kept = 0
        self._loaded: set[str] = {NOTHING}
        self._measured: dict[Callable[[Array], float], Array] = {}

    @classmethod
    def of(cls, batch: DocumentBatch, what: str = FRAMES, column: str = CLIP) -> tuple[DocumentBatch, Clips]:
        """Return the batch without the clips of which this cannot be read, which are reported as bad, and its clips."""
        key = cache_key(column)
        found: Clips | None = batch.cache.get(key)
        if found is None:
            places = places_of(batch, column)
            if missing := {row: BadVideo("no clip") for row, place in enumerate(places) if place is None}:
                batch = without_bad(batch, missing)
            batch.cache[key] = found = cls([place for place in places if place is not None])
        if reasons := found.load(what):
            batch = without_bad(batch, reasons)
            return cls.of(batch, what, column)
        return batch, found

    def __len__(self) -> int:
        return len(self.places)

    def select(self, mask: Array) -> Clips:
        """Return the clips for which ``mask`` is true."""
        rows = np.flatnonzero(mask).tolist()
        made = Clips([self.places[row] for row in rows])
        made._infos = {n: self._infos[row] for n, row in enumerate(rows) if row in self._infos}
        made._motions = {n: self._motions[row] for n, row in enumerate(rows) if row in self._motions}
        for n, row in enumerate(rows):
            if row in self._frames:
                made._keep(n, self._frames[row])
        made._loaded = set(self._loaded)
        made._measured = {measure: values[mask] for measure, values in self._measured.items()}
        return made

    def load(self, what: str) -> dict[int, BadVideo]:
        """Read something of all clips, and return the numbers of those of which it cannot be read, with reasons."""
        if what in self._loaded:
            return {}
        reader = {INFO: self._read_info, FRAMES: self._read_frames, MOTION: self._read_motion}[what]
        reasons: dict[int, BadVideo] = {}
        for number in range(len(self)):
            try:
                reader(number)
            except BadVideo as error:
                reasons[number] = error
        self._loaded.add(what)
        return reasons

    @property
    def infos(self) -> Sequence[VideoInfo]:
        """What the container of each clip says. `load` has read it."""
        return [self._infos[number] for number in range(len(self))]

    @property
    def motions(self) -> Sequence[Motion]:
        """The motion in each clip. `load` has measured it."""
        return [self._motions[number] for number in range(len(self))]

    def frames(self) -> Iterator[Array]:
        """Yield some frames of each clip: uint8, (frames, height, width, 3). `load` has decoded them once."""
        for number in range(len(self)):
            yield self._frames_of(number)

    def measured(self, measure: Callable[[Array], float]) -> Array:
        """Return a number for the frames of each clip. It is computed once for all that ask for it."""
        if measure not in self._measured:
            self._measured[measure] = np.fromiter(map(measure, self.frames()), dtype=np.float64, count=len(self))
        return self._measured[measure]

    def _read_info(self, number: int) -> None:
        if number not in self._infos:
            self._infos[number] = self.places[number].info()

    def _read_motion(self, number: int) -> None:
        if number not in self._motions:
            self._motions[number] = self.places[number].motion()

    def _read_frames(self, number: int) -> None:
        if number not in self._frames:
            self._read_info(number)
            self._keep(number, self._decoded(number))

    def _frames_of(self, number: int) -> Array:
        found = self._frames.get(number)
        return self._decoded(number) if found is None else found

    def _decoded(self, number: int) -> Array:
        return self.places[number].frames(info=self._infos[number])

    def _keep(self, number: int, found: Array) -> None:
        if self._kept + found.nbytes <= KEPT_BYTES:
            self._frames[number] = found
            self._kept += found.nbytes


class ClipStage(VideoStage):
    """A stage that reads clips. Batches of any reader will do, for example clips in a column of Parquet files."""

    row_wise = True
    loads = (__name__,)

    def input_type(self) -> TaskType:
        return DocumentBatch

    def output_type(self) -> TaskType:
        return DocumentBatch


def reduced(height: int, width: int, short_side: int) -> tuple[int, int]:
    """Return the size of a frame whose short side is reduced to ``short_side`` if it is longer."""
    scale = min(1.0, short_side / min(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def cache_key(column: str) -> str:
    """Return the name of the clips of a column in the cache of a batch. It is cleared when the column is set."""
    return f"{column}.clips"


def places_of(
    batch: DocumentBatch, column: str = CLIP, options: Mapping[str, Any] | None = None
) -> Sequence[ClipPlace | None]:
    """Return where each clip is: in a column of bytes, or in a column of paths, between the times of the clip.

    ``options`` are those of the storage of the videos.
    """
    import pyarrow as pa

    names = batch.data.column_names
    kind = batch.data.schema.field(column).type if column in names else None
    if kind is None or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return [None if data is None else ClipPlace(data) for data in bytes_of(batch, column)]
    paths = batch.data.column(column).to_pylist()
    if column == VIDEO and LOCATION in names:  # with what is needed to open it
        paths = [url or path for url, path in zip(batch.data.column(LOCATION).to_pylist(), paths, strict=True)]
    starts, ends = (
        batch.data.column(name).to_pylist() if name in names else [None] * len(paths) for name in (START, END)
    )
    return [
        None if path is None else ClipPlace(path, start or 0.0, end, options or {})
        for path, start, end in zip(paths, starts, ends, strict=True)
    ]


def bytes_of(batch: DocumentBatch, column: str = CLIP) -> Sequence[memoryview | None]:
    """Return the encoded bytes in each row of a column, without a copy; None where there are none."""
    from gristmill.images.pictures import encoded

    try:
        if batch.data.column(column).null_count == batch.num_items:
            return [None] * batch.num_items
        return encoded(batch, column)
    except KeyError:
        raise KeyError(f"there is no column {column!r}. Columns: {', '.join(batch.columns)}.") from None
    except TypeError:
        kind = batch.data.schema.field(column).type
        raise TypeError(f"column {column!r} holds {kind}, not encoded clips: name the column of the clips.") from None
