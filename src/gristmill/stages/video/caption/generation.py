"""Captions of clips, by a model of images and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gristmill.models.checkpoint import Checkpoint
from gristmill.models.video.captioner import Captioner, CaptionerSpec, Engine, Window
from gristmill.models.video.generation import BadPrompt
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.columns import set_column
from gristmill.stages.video.caption.preparation import model_name
from gristmill.stages.video.caption.windows import WINDOWS, prepared_windows
from gristmill.stages.video.caption.worker import Answers, GenerationStage
from gristmill.tasks.image import CAPTION
from gristmill.tasks.video import VideoTask

CAPTION_WINDOWS = "caption_windows"
STAGE2 = "Improve this caption of the video: correct what is wrong, and add what is missing. Caption:"


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class CaptionGenerationStage(GenerationStage):
    """Adds a caption of each clip, by a model of the Qwen-VL family: Qwen2-VL, Qwen2.5-VL or Qwen3-VL.

        CaptionGenerationStage(model="Qwen/Qwen2.5-VL-7B-Instruct", gpus=1)

    - ``model``: a folder, ``package:module/folder``, or a repository on the Hugging Face hub. ``model_dir`` is another
      name for it, and ``model_variant`` "qwen2.5" or "qwen3" the published one.
    - ``gpus``: the GPUs of a worker: 1, or a share of one. Without a GPU, CPUs compute, in 32 bits.
    - ``caption_batch_size``: how many windows are computed together. When they do not fit into the memory of the GPU,
      the number is halved.
    - ``max_output_tokens``: the most tokens of a caption.
    - ``caption_field``: the column of the captions. Those of several windows are joined by line breaks.
    - ``window_field``: the column of the caption of each window, with its times in the clip; None makes none.
    - ``generate_stage2_caption``: ask a second time, with the first caption and ``stage2_prompt_text``.
    - ``engine``: "transformers", "vllm", or "auto": vLLM on a GPU if it is installed.
    - ``autocast``: compute in 16 bits on a GPU.
    - ``cache_dir``, ``hf_token``: the cache of the Hugging Face hub, and an access token for gated repositories.
    - ``fp8``, ``disable_mmcache``, ``verbose``: accepted for pipelines of NeMo Curator.

    Each token is the most probable one. Rounding in 16 bits depends on which windows are computed together, so with
    another ``caption_batch_size`` captions may differ on a GPU. A clip without a prompt, or with one that is too long
    or has a special token of the model, becomes a bad record.
    """

    indifferent = ("cache_dir", "hf_token", "gpus", "fp8", "disable_mmcache", "verbose")

    model: str | None = None
    model_dir: str | None = None
    model_variant: str = "qwen2.5"
    gpus: float = 1
    caption_batch_size: int = 16
    max_output_tokens: int = 512
    caption_field: str = CAPTION
    window_field: str | None = CAPTION_WINDOWS
    generate_stage2_caption: bool = False
    stage2_prompt_text: str | None = None
    engine: Engine = "auto"
    autocast: bool = True
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    fp8: bool = False
    disable_mmcache: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        name = model_name(self.model, self.model_dir, self.model_variant)
        checkpoint = Checkpoint(name, self.cache_dir, self.hf_token)
        precision: Any = "auto" if self.autocast else "float32"
        self.spec = CaptionerSpec(checkpoint, self.caption_batch_size, self.max_output_tokens, self.engine, precision)
        names = ("caption_batch_size", "max_output_tokens")
        self.begin(self.caption_batch_size, self.max_output_tokens, self.gpus, names)
        self._captioner: Captioner | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [WINDOWS]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.caption_field, *([self.window_field] if self.window_field else [])]

    def removes(self) -> list[str]:
        return [WINDOWS]

    def check_needs(self) -> None:
        self.spec.check()

    def fetch(self) -> None:
        self.spec.fetch()

    def load(self, device: str, share: float) -> None:
        self._captioner = self.spec.load(device, share)

    def teardown(self) -> None:
        self._captioner = None

    def questions(self, task: VideoTask) -> list[list[Any]]:
        return [[Window(one.frames, one.fps, one.prompt) for one in row] for row in prepared_windows(task)]

    def ask(self, questions: Sequence[Any]) -> Answers:
        assert self._captioner is not None, "setup() comes first"
        windows: list[Window] = list(questions)
        found = self._captioner.captions(windows)
        if not self.generate_stage2_caption:
            return found
        second = [place for place, text in enumerate(found) if not isinstance(text, BadPrompt)]
        question = self.stage2_prompt_text or STAGE2
        again = [replace(windows[place], prompt=f"{question}\n{found[place]}") for place in second]
        for place, text in zip(second, self._captioner.captions(again), strict=True):
            found[place] = text
        return found

    def counted(self) -> dict[str, int]:
        assert self._captioner is not None, "setup() comes first"
        counters = dict(self._captioner.counters)
        self._captioner.counters.clear()
        return counters

    def answered(self, task: VideoTask, rows: Sequence[Sequence[str]]) -> VideoTask:
        import pyarrow as pa

        captions = ["\n".join(texts) if texts else None for texts in rows]
        kind = pa.struct([("start_s", pa.float64()), ("end_s", pa.float64()), ("caption", pa.large_string())])
        parts = [
            [
                {"start_s": window.start_s, "end_s": window.end_s, "caption": text}
                for window, text in zip(windows, texts, strict=True)
            ]
            for windows, texts in zip(prepared_windows(task), rows, strict=True)
        ]
        set_column(task, self.caption_field, pa.array(captions, pa.large_string()))
        if self.window_field:
            set_column(task, self.window_field, pa.array(parts, pa.list_(kind)))
        task.data = task.data.drop_columns([WINDOWS])
        return task
