"""Captions of windows of frames by models of the Qwen-VL family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

from gristmill.errors import ModelError
from gristmill.lazy import Array
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.video.frame_format import FrameFormat, frame_format
from gristmill.models.video.generation import (
    VIDEO_PART,
    BadPrompt,
    ChatPrompt,
    TextGenerator,
    load_model,
    load_tokenizer,
    require_transformers,
)

if TYPE_CHECKING:
    import torch

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
VARIANTS = {"qwen2.5": MODEL, "qwen3": "Qwen/Qwen3-VL-8B-Instruct"}
"""The checkpoints of NeMo Curator's variants."""
Engine = Literal["auto", "transformers", "vllm"]


@dataclass(frozen=True, slots=True)
class Window:
    """Some frames of a clip, and the question about them."""

    frames: Array
    """uint8, (frames, height, width, 3). Height and width are those of `FrameFormat.size`."""
    fps: float
    """The rate of these frames."""
    prompt: str | None


class Captioner(Protocol):
    """What makes captions."""

    @property
    def counters(self) -> dict[str, int]:
        """What happened, by name."""

    def captions(self, windows: Sequence[Window]) -> list[str | BadPrompt]:
        """Return a caption of each window, in order, or why there is none."""


@dataclass(frozen=True)
class CaptionerSpec:
    """Which model makes captions: a plain value, which stages hold and send to their workers."""

    checkpoint: Checkpoint
    batch_size: int = 16
    """The most windows that are computed together."""
    most_tokens: int = 512
    """The most tokens of a caption."""
    engine: Engine = "auto"
    """"vllm" or "transformers"; "auto" is vLLM on a GPU if it is installed."""
    precision: Literal["auto", "float32"] = "auto"
    """On GPUs; "auto" is bfloat16. CPUs compute in float32."""

    @cached_property
    def format(self) -> FrameFormat:
        """The frames that it reads."""
        return frame_format(self.checkpoint)

    def check(self) -> None:
        """Raise a `ModelError` if it cannot be loaded, as far as that is known without reading weights."""
        _ = self.format
        self.checkpoint.check_tokenizer()
        self.checkpoint.weight_names()
        require_transformers(self.checkpoint)
        if self.engine == "vllm" and not has_vllm():
            raise ModelError(
                "engine='vllm' needs the package vllm.\n    pip install vllm, or set engine='transformers'."
            )

    def fetch(self) -> None:
        """Download what is not on this machine yet."""
        self.checkpoint.fetch()

    def load(self, device: torch.device | str = "cpu", share: float = 1.0) -> Captioner:
        """Load the model. Its files must be on this machine (`fetch`). ``share`` of the GPU is for it."""
        is_gpu = str(device).startswith("cuda")
        if self.engine == "vllm" or (self.engine == "auto" and is_gpu and has_vllm()):
            from gristmill.models.video.vllm_captioner import VllmCaptioner

            return VllmCaptioner(self, share)
        model = load_model(self.checkpoint, "images", device, self.precision)
        return QwenCaptioner(model, load_tokenizer(self.checkpoint), self)


def has_vllm() -> bool:
    """Whether vLLM is installed."""
    from importlib.util import find_spec

    return find_spec("vllm") is not None


class QwenCaptioner(TextGenerator):
    """Captions by a model of transformers."""

    def __init__(self, model: Any, tokenizer: Any, spec: CaptionerSpec) -> None:
        import inspect

        from gristmill.models.video.vision_attention import group_attention

        group_attention(model)
        super().__init__(model, tokenizer, spec.checkpoint.title, spec.batch_size, spec.most_tokens)
        self.format = spec.format
        self._video_token = tokenizer.convert_tokens_to_ids("<|video_pad|>")
        self._arguments = set(inspect.signature(model.forward).parameters)

    def captions(self, windows: Sequence[Window]) -> list[str | BadPrompt]:
        """Return a caption of each window, in order, or why there is none."""
        made: list[str | BadPrompt] = []
        places, prompts = [], []
        for window in windows:
            try:
                prompts.append(self.prompt(window))
                places.append(len(made))
                made.append("")
            except BadPrompt as error:
                made.append(error)
        for place, text in zip(places, self.texts(prompts), strict=True):
            made[place] = text
        return made

    def prompt(self, window: Window) -> ChatPrompt:
        """Return the tokens of a window. Raise `BadPrompt` if there are none."""
        question = self.chats.checked(window.prompt)
        text = self.chats.text(video_chat(question))
        grid = self.format.grid(*window.frames.shape[:3])
        if text.count(VIDEO_PART) != 1:
            raise ModelError(
                f"{self.title}: its chat template does not put {VIDEO_PART} into a prompt with a video.\n"
                "    get the complete checkpoint."
            )
        return ChatPrompt(self.ids(text.replace(VIDEO_PART, self.format.placeholder(grid, window.fps))), window)

    def extra(self, prompts: Sequence[ChatPrompt], ids: torch.Tensor) -> dict[str, Any]:
        """Return the patches of the frames, and where they are."""
        import torch

        windows: list[Window] = [one.extra for one in prompts]
        grids = [self.format.grid(*one.frames.shape[:3]) for one in windows]
        dtype = self.model.dtype
        given: dict[str, Any] = {
            "pixel_values_videos": torch.cat([patches(one.frames, self.format, self.device, dtype) for one in windows]),
            "video_grid_thw": torch.tensor(grids, device=self.device),
        }
        if "second_per_grid_ts" in self._arguments:
            given["second_per_grid_ts"] = [self.format.temporal / one.fps for one in windows]
        if "mm_token_type_ids" in self._arguments:
            given["mm_token_type_ids"] = 2 * (ids == self._video_token).int()
        return given


def video_chat(question: str) -> list[dict[str, Any]]:
    """Return a chat with a video and a question."""
    return [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": question}]}]


def patches(frames: Array, form: FrameFormat, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Return frames as rows of numbers, one for each patch, in the order of the Qwen-VL family.

    Patches that become one token follow one another. The last frame comes again until the number of frames fits.
    """
    import torch

    pixels = torch.from_numpy(frames.copy()).to(device)
    missing = -len(pixels) % form.temporal
    if missing:
        pixels = torch.cat([pixels, pixels[-1:].expand(missing, -1, -1, -1)])
    mean = torch.tensor(form.mean, device=device)
    std = torch.tensor(form.std, device=device)
    numbers = ((pixels.float() / 255 - mean) / std).to(dtype)
    times, rows, columns = form.grid(*frames.shape[:3])
    cut = numbers.reshape(
        *(times, form.temporal),
        *(rows // form.merge, form.merge, form.patch),
        *(columns // form.merge, form.merge, form.patch),
        3,
    )
    return cut.permute(0, 2, 5, 3, 6, 8, 1, 4, 7).reshape(times * rows * columns, -1)
