"""Captions by vLLM, where it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gristmill.models.video.generation import VIDEO_PART, BadPrompt, Chats, load_tokenizer

if TYPE_CHECKING:
    from gristmill.models.video.captioner import CaptionerSpec, Window


class VllmCaptioner:
    """Captions by a model of vLLM, which computes windows of several lengths together."""

    def __init__(self, spec: CaptionerSpec, share: float) -> None:
        """``share``: of the memory of the GPU."""
        import vllm

        self.counters: dict[str, int] = {}
        self._spec = spec
        self._chats = Chats(load_tokenizer(spec.checkpoint))
        self._model: Any = vllm.LLM(
            model=str(spec.checkpoint.folder()),
            limit_mm_per_prompt={"image": 0, "video": 1},
            max_num_seqs=spec.batch_size,
            gpu_memory_utilization=min(0.95, 0.9 * share),
            seed=0,
        )
        self._sampling = vllm.SamplingParams(temperature=0.0, max_tokens=spec.most_tokens)
        self._longest = int(self._model.llm_engine.model_config.max_model_len)

    def captions(self, windows: Sequence[Window]) -> list[str | BadPrompt]:
        """Return a caption of each window, in order, or why there is none."""
        made: list[str | BadPrompt] = []
        inputs = []
        for window in windows:
            try:
                inputs.append(self._input(window))
                made.append("")
            except BadPrompt as error:
                made.append(error)
        found = iter(self._model.generate(inputs, self._sampling, use_tqdm=False) if inputs else [])
        return [one if isinstance(one, BadPrompt) else next(found).outputs[0].text.strip() for one in made]

    def _input(self, window: Window) -> dict[str, Any]:
        from gristmill.models.video.captioner import video_chat

        question = self._chats.checked(window.prompt)
        text = self._chats.text(video_chat(question))
        form = self._spec.format
        grid = form.grid(*window.frames.shape[:3])
        longer = text.replace(VIDEO_PART, form.placeholder(grid, window.fps))
        self._chats.ids(longer, self._longest - self._spec.most_tokens)  # raises for a prompt that is too long
        count = len(window.frames)
        metadata = {
            "fps": window.fps,
            "duration": count / window.fps,
            "total_num_frames": count,
            "frames_indices": list(range(count)),
            "do_sample_frames": False,
        }
        return {
            "prompt": text,
            "multi_modal_data": {"video": [(window.frames, metadata)]},
            "mm_processor_kwargs": {"do_resize": False, "do_sample_frames": False, "fps": window.fps},
        }
