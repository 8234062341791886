"""Previews of clips: small animated images."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from gristmill.stages.registry import builtin
from gristmill.stages.resources import Resources
from gristmill.stages.text.filters.columns import set_column
from gristmill.stages.video.clips import ClipStage, places_of
from gristmill.stages.video.rows import without_bad
from gristmill.tasks.video import CLIP, PREVIEW, VideoTask
from gristmill.videos.errors import BadVideo

__all__ = ["PreviewStage"]

MOST_FRAMES = 300
"""Frames of a preview at most. Those of a longer clip are further apart."""


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class PreviewStage(ClipStage):
    """Adds a preview of each clip: an animated WebP, in the column ``preview``.

    - ``target_fps``: frames per second. A preview has at most 300; those of a longer clip are further apart. It plays
      as fast as the clip.
    - ``target_height``: pixels. A lower clip keeps its size.
    - ``compression_level``: 0 to 6; higher levels are smaller and slower.
    - ``quality``: 0 to 100.
    - ``clip_field``: the column of encoded clips; a column of paths, such as "video", is read between the times of each
      clip.

    A clip that cannot be decoded is a bad record. ``num_cpus_per_worker`` are the CPUs that a worker reserves, and
    ``verbose`` is accepted for pipelines of NeMo Curator.
    """

    indifferent = ("num_cpus_per_worker", "verbose")

    target_fps: float = 1.0
    target_height: int = 240
    compression_level: int = 6
    quality: int = 50
    num_cpus_per_worker: float = 1.0
    clip_field: str = CLIP
    verbose: bool = False

    def __post_init__(self) -> None:
        if not self.target_fps > 0:
            raise ValueError(f"target_fps must be above 0, not {self.target_fps!r}.")
        for name, least, most in (("target_height", 16, 4096), ("compression_level", 0, 6), ("quality", 0, 100)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{name} must be a whole number from {least} to {most}, not {value!r}.")
        self.resources = Resources(cpus=self.num_cpus_per_worker)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.clip_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [PREVIEW]

    def process(self, task: VideoTask) -> VideoTask:
        import pyarrow as pa

        made: list[bytes] = []
        problems: dict[int, BadVideo] = {}
        for row, place in enumerate(places_of(task, self.clip_field, self.storage)):
            try:
                if place is None:
                    raise BadVideo("no clip")
                made.append(self._preview(place))
            except BadVideo as error:
                problems[row] = error
        task = without_bad(task, problems)
        set_column(task, PREVIEW, pa.array(made, pa.large_binary()))
        return task

    def _preview(self, place: Any) -> bytes:
        """An animation. All its frames are shown for the same time, so that it takes as long as the clip."""
        from PIL import Image

        info = place.info()
        length = max(0.0, (info.duration_s if place.end_s is None else place.end_s) - place.start_s)
        count = min(MOST_FRAMES, max(1, round(length * self.target_fps)))
        height = min(self.target_height, info.height)
        size = height, max(1, round(info.width * height / info.height))
        images = [Image.fromarray(pixels) for pixels in place.shown(count, size, info)]
        file = io.BytesIO()
        images[0].save(
            file,
            "WEBP",
            save_all=True,
            append_images=images[1:],
            duration=max(1, round(1000 * length / len(images))),
            loop=0,
            quality=self.quality,
            method=self.compression_level,
        )
        return file.getvalue()
