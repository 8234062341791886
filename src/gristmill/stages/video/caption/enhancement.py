"""Captions of clips, rewritten by a model of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.models.checkpoint import Checkpoint
from gristmill.models.video.rewriter import MODEL, Rewriter, RewriterSpec
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.columns import column_of, set_column
from gristmill.stages.video.caption.worker import Answers, GenerationStage
from gristmill.tasks.image import CAPTION
from gristmill.tasks.video import VideoTask

INSTRUCTIONS = {
    "default": "You rewrite captions of videos. Keep every fact, invent none, and describe them in more detail and in "
    "clear sentences. Answer with the new caption alone.",
    "av-surveillance": "You rewrite captions of videos of dashboard and surveillance cameras. Keep every fact, invent "
    "none, describe them in more detail, and end with a summary. Answer with the new caption alone.",
}
"""Instructions for the model, by the names of NeMo Curator's variants."""


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class CaptionEnhancementStage(GenerationStage):
    """Adds a rewritten caption of each clip, by a model of texts.

        CaptionEnhancementStage(model="Qwen/Qwen2.5-14B-Instruct", gpus=1)

    - ``model``: a folder, ``package:module/folder``, or a repository on the Hugging Face hub, of a chat model that
      transformers knows. ``model_dir`` is another name for it.
    - ``prompt_text``: the instruction. ``prompt_variant`` names one of ours instead: "default" or "av-surveillance".
    - ``caption_field``, ``enhanced_field``: the column of the captions, and that of the rewritten ones.
    - ``gpus``: the GPUs of a worker. Without a GPU, CPUs compute, in 32 bits.
    - ``model_batch_size``: how many captions are computed together. When they do not fit into the memory of the GPU,
      the number is halved.
    - ``max_output_tokens``: the most tokens of a rewritten caption.
    - ``autocast``: compute in 16 bits on a GPU.
    - ``cache_dir``, ``hf_token``: the cache of the Hugging Face hub, and an access token for gated repositories.
    - ``fp8``, ``verbose``: accepted for pipelines of NeMo Curator.

    A clip without a caption gets none. One whose caption is too long, or has a special token of the model, becomes a
    bad record. As in `CaptionGenerationStage`, each token is the most probable one.
    """

    indifferent = ("cache_dir", "hf_token", "gpus", "fp8", "verbose")

    model: str | None = None
    model_dir: str | None = None
    prompt_variant: str = "default"
    prompt_text: str | None = None
    caption_field: str = CAPTION
    enhanced_field: str = "enhanced_caption"
    gpus: float = 1
    model_batch_size: int = 128
    max_output_tokens: int = 512
    autocast: bool = True
    cache_dir: str | None = None
    hf_token: str | bool | None = None
    fp8: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.model is not None and self.model_dir is not None:
            raise ValueError("model and model_dir are the same argument: give one of them.")
        if self.prompt_text is None and self.prompt_variant not in INSTRUCTIONS:
            raise ValueError(f"prompt_variant must be one of {', '.join(INSTRUCTIONS)}, not {self.prompt_variant!r}.")
        checkpoint = Checkpoint(self.model or self.model_dir or MODEL, self.cache_dir, self.hf_token)
        precision: Any = "auto" if self.autocast else "float32"
        self.spec = RewriterSpec(checkpoint, self.model_batch_size, self.max_output_tokens, precision)
        self.begin(self.model_batch_size, self.max_output_tokens, self.gpus, ("model_batch_size", "max_output_tokens"))
        self._rewriter: Rewriter | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.caption_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.enhanced_field]

    def check_needs(self) -> None:
        self.spec.check()

    def fetch(self) -> None:
        self.spec.fetch()

    def load(self, device: str, share: float) -> None:
        self._rewriter = self.spec.load(device)

    def teardown(self) -> None:
        self._rewriter = None

    def questions(self, task: VideoTask) -> list[list[Any]]:
        captions = column_of(task, self.caption_field).to_pylist()
        return [[one] if one is not None and one.strip() else [] for one in captions]

    def ask(self, questions: Sequence[Any]) -> Answers:
        assert self._rewriter is not None, "setup() comes first"
        instruction = INSTRUCTIONS[self.prompt_variant] if self.prompt_text is None else self.prompt_text
        return self._rewriter.rewritten(instruction, list(questions))

    def counted(self) -> dict[str, int]:
        assert self._rewriter is not None, "setup() comes first"
        counters = dict(self._rewriter.counters)
        self._rewriter.counters.clear()
        return counters

    def answered(self, task: VideoTask, rows: Sequence[Sequence[str]]) -> VideoTask:
        import pyarrow as pa

        found = [texts[0] if texts else None for texts in rows]
        set_column(task, self.enhanced_field, pa.array(found, pa.large_string()))
        return task
