"""Windows of frames of clips for captions, on CPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill.models.checkpoint import Checkpoint
from gristmill.models.video.captioner import VARIANTS, CaptionerSpec
from gristmill.models.video.frame_format import MOST_PIXELS, FrameFormat
from gristmill.stages.core import NodeInfo, WorkerMetadata
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.columns import column_of
from gristmill.stages.video.caption.windows import (
    LEAST_FRAMES,
    WINDOWS,
    PreparedWindow,
    sample_count,
    window_column,
    windows_of,
)
from gristmill.stages.video.embedding.clips import ClipFrameStage, ClipSource
from gristmill.tasks.video import FPS, VideoTask
from gristmill.videos.errors import BadVideo

if TYPE_CHECKING:
    import pyarrow as pa

PROMPTS = {
    "default": "Describe the video in detail: the scene, the objects and people in it, what they do, and how the "
    "camera moves. Write one paragraph, without introduction.",
    "av": "The video was recorded by a camera on a driving car. Describe the scene in detail: the road and its "
    "markings, signs and lights, the other vehicles, cyclists and pedestrians and how they move, what the car with the "
    "camera does, and anything that matters for safety. Write one paragraph, without introduction.",
    "av-surveillance": "The video was recorded by a surveillance camera. Describe the scene in detail: the place, the "
    "vehicles and people and how they move, road signs and lights, and anything that matters for safety. Write one "
    "paragraph, without introduction.",
}
"""Questions about a video, by the names of NeMo Curator's variants."""


def model_name(model: str | None, model_dir: str | None, variant: str) -> str:
    """Return the checkpoint that the arguments of a stage name."""
    if model is not None and model_dir is not None:
        raise ValueError("model and model_dir are the same argument: give one of them.")
    if variant not in VARIANTS:
        raise ValueError(f"model_variant must be one of {', '.join(VARIANTS)}, not {variant!r}.")
    return model or model_dir or VARIANTS[variant]


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class CaptionPreparationStage(ClipFrameStage):
    """Adds windows of frames of each clip, for `CaptionGenerationStage`.

        CaptionPreparationStage(sampling_fps=2), CaptionGenerationStage()

    - ``model``: the checkpoint that makes captions, as `CaptionGenerationStage` takes it. Here it tells the size of
      frames. ``model_dir`` is another name for it, and ``model_variant`` "qwen2.5" or "qwen3" the published one.
    - ``prompt_text``: the question about each window. ``prompt_variant`` names one of ours instead: "default", "av" or
      "av-surveillance".
    - ``prompt_field``: a column with a question for each clip instead.
    - ``sampling_fps``: how many frames are taken of a second.
    - ``window_size``: the frames of the clip, at its own rate, in a window.
    - ``remainder_threshold``: the least frames in the last window. Fewer belong to the window before.
    - ``max_frame_pixels``: larger frames are reduced to so many pixels.
    - ``cache_dir``, ``hf_token``: the cache of the Hugging Face hub, and an access token for gated repositories.
    - ``preprocess_dtype``, ``generate_previews``, ``verbose``: accepted for pipelines of NeMo Curator.

    A clip that cannot be read, or has fewer than four frames, becomes a bad record.
    """

    indifferent = ("cache_dir", "hf_token", "preprocess_dtype", "generate_previews", "verbose")

    model: str | None = None
    model_dir: str | None = None
    model_variant: str = "qwen2.5"
    prompt_variant: str = "default"
    prompt_text: str | None = None
    prompt_field: str | None = None
    sampling_fps: float = 2.0
    window_size: int = 256
    remainder_threshold: int = 128
    max_frame_pixels: int = MOST_PIXELS
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    preprocess_dtype: str = "uint8"
    generate_previews: bool = True
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.prompt_text is None and self.prompt_variant not in PROMPTS:
            raise ValueError(f"prompt_variant must be one of {', '.join(PROMPTS)}, not {self.prompt_variant!r}.")
        if not self.sampling_fps > 0:
            raise ValueError(f"sampling_fps must be above 0, not {self.sampling_fps!r}.")
        if self.window_size < LEAST_FRAMES or not 1 <= self.remainder_threshold <= self.window_size:
            raise ValueError(
                f"window_size must be at least {LEAST_FRAMES}, and remainder_threshold from 1 to window_size, not "
                f"{self.window_size!r} and {self.remainder_threshold!r}."
            )
        name = model_name(self.model, self.model_dir, self.model_variant)
        self.spec = CaptionerSpec(Checkpoint(name, self.cache_dir, self.hf_token))
        self._format: FrameFormat | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        attributes, columns = super().inputs()
        return attributes, [*columns, *([self.prompt_field] if self.prompt_field else [])]

    def looks_at(self) -> list[str]:
        return [*super().looks_at(), FPS]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [WINDOWS]

    def check_needs(self) -> None:
        super().check_needs()
        _ = self.spec.format

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        _ = self.spec.format  # of a repository, its configuration

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._format = self.spec.format

    def frames_of(self, row: int, source: ClipSource, task: VideoTask) -> tuple[Any, int]:
        from gristmill.videos.probe import probe

        assert self._format is not None, "setup() comes first"
        info = probe(source.location, source.options)
        fps = info.fps if info.fps > 0 else 25.0
        count = round(source.length_s * fps)
        parts = windows_of(count, self.window_size, self.remainder_threshold)
        if not parts:
            raise BadVideo("too few frames for a caption")
        size = self._format.size(info.height, info.width, self.max_frame_pixels)
        prompt = column_of(task, self.prompt_field)[row].as_py() if self.prompt_field else self._question
        times: list[float] = []
        numbers = []
        for first, stop in parts:
            many = sample_count(stop - first, fps, self.sampling_fps)
            numbers.append(many)
            times += [(first + place * (stop - first - 1) / max(1, many - 1)) / fps for place in range(many)]
        frames = source.frames_at(times, size)
        windows = []
        done = 0
        for (first, stop), many in zip(parts, numbers, strict=True):
            rate = many / ((stop - first) / fps)
            windows.append(PreparedWindow(first / fps, stop / fps, rate, prompt, frames[done : done + many]))
            done += many
        return windows, frames.nbytes

    @property
    def _question(self) -> str:
        return PROMPTS[self.prompt_variant] if self.prompt_text is None else self.prompt_text

    def columns_of(self, made: Sequence[Any]) -> Mapping[str, pa.Array]:
        return {WINDOWS: window_column(list(made))}
