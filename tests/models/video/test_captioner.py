"""Captions by models of the Qwen-VL family: their input, batches, and prompts that get no caption."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.video import checkpoints

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.video.captioner import CaptionerSpec, QwenCaptioner, Window, patches
from gristmill.models.video.frame_format import FrameFormat, frame_format
from gristmill.models.video.generation import NO_PROMPT, SPECIAL, TOO_LARGE, TOO_LONG, BadPrompt
from gristmill.models.video.rewriter import RewriterSpec

QUESTION = "the quick brown fox"


@pytest.fixture
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


def windows_of(seed: int, sides: list[int], frames: int = 4, prompt: str | None = QUESTION) -> list[Window]:
    return [
        Window(checkpoints.clips_of(seed + number, 1, frames, side)[0], 2.0, prompt)
        for number, side in enumerate(sides)
    ]


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_vl"])
def test_captions_are_those_of_generate_one_by_one(tmp_path: Path, seed: int, kind: str) -> None:
    import torch

    model = checkpoints.save_captioner(kind, tmp_path, seed)
    spec = CaptionerSpec(Checkpoint(str(tmp_path)), batch_size=2, most_tokens=6)
    spec.check()
    captioner: Any = spec.load()
    factor = spec.format.factor
    windows = windows_of(seed, [factor, 2 * factor, 3 * factor])

    found = captioner.captions(windows)

    expected = []
    for window in windows:
        prompt = captioner.prompt(window)
        ids = torch.tensor([prompt.ids])
        made = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=6,
            do_sample=False,
            pad_token_id=0,
            **captioner.extra([prompt], ids),
        )
        expected.append(captioner.chats.tokenizer.decode(made[0, len(prompt.ids) :], skip_special_tokens=True).strip())
    assert found == expected
    assert sum(type(one).__name__ == "GroupedAttention" for one in captioner.model.modules()) == 2
    assert len(set(found)) > 1, "the frames do not matter"
    assert found == captioner.captions(windows)


def test_attention_of_windows_is_that_of_transformers(seed: int) -> None:
    import torch
    from transformers import Qwen2_5_VLVisionConfig
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLVisionAttention

    from gristmill.models.video.vision_attention import GroupedAttention, SeenGroups

    torch.manual_seed(seed)
    theirs = Qwen2_5_VLVisionAttention(Qwen2_5_VLVisionConfig(hidden_size=32, num_heads=2))
    theirs.config._attn_implementation = "sdpa"
    ours = GroupedAttention(theirs, SeenGroups())
    states, angles = torch.randn(41, 32), torch.randn(41, 16)
    for bounds in ([0, 16, 20, 36, 40, 41], [0, 41], [0, 16, 20, 36, 40, 41]):
        layout = torch.tensor(bounds, dtype=torch.int32)
        with torch.no_grad():
            places = (angles.cos(), angles.sin())
            expected = theirs(states, cu_seqlens=layout, position_embeddings=places)
            found = ours(states, cu_seqlens=layout, position_embeddings=places)
        assert (found - expected).abs().max() < 1e-5


@pytest.mark.parametrize(("patch", "half"), [(14, False), (16, True)])
def test_patches_are_those_of_transformers(seed: int, patch: int, half: bool) -> None:
    import torch
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    form = frame_format_of(patch, half)
    side = form.factor
    one, two = checkpoints.clips_of(seed, 1, 2, 2 * side)[0][:, :side]
    processor = Qwen2VLImageProcessorPil(patch_size=patch, image_mean=form.mean, image_std=form.std, do_resize=False)
    expected = [np.asarray(processor([pixels], return_tensors="np")["pixel_values"]) for pixels in (one, two)]

    # an image of transformers is the same frame twice; a video has the last one again if one is missing
    found = patches(np.stack([one, one, two]), form, torch.device("cpu"), torch.float32).numpy()

    assert found.shape == (2 * 2 * 4, 3 * 2 * patch * patch)
    assert np.abs(found - np.concatenate(expected)).max() < 1e-5


def frame_format_of(patch: int, half: bool) -> FrameFormat:
    mean = (0.5, 0.5, 0.5) if half else (0.48, 0.46, 0.41)
    return FrameFormat("qwen3_vl" if half else "qwen2_5_vl", patch, 2, 2, mean, (0.27, 0.26, 0.28))


def test_frames_are_resized_to_whole_tokens_and_few_pixels() -> None:
    form = frame_format_of(14, False)
    assert form.size(360, 640) == (364, 644)
    tall, wide = form.size(2160, 3840)
    assert tall % 28 == wide % 28 == 0
    assert tall * wide <= 768 * 28 * 28
    assert abs(wide / tall - 16 / 9) < 0.1
    tall, wide = form.size(30, 40)
    assert 128 * 28 * 28 <= tall * wide < 200 * 28 * 28
    assert form.tokens(form.grid(5, 364, 644)) == 3 * 13 * 23


def test_the_placeholder_of_qwen3_tells_times() -> None:
    form = frame_format_of(16, True)
    text = form.placeholder(form.grid(4, 32, 64), 2.0)
    pads = "<|vision_start|><|video_pad|><|video_pad|><|vision_end|>"
    assert text == f"<0.2 seconds>{pads}<1.2 seconds>{pads}"


def test_bad_prompts_cost_their_own_window_only(tmp_path: Path, seed: int) -> None:
    checkpoints.save_captioner("qwen2_5_vl", tmp_path, seed)
    captioner = CaptionerSpec(Checkpoint(str(tmp_path)), 4, 5).load()
    (good,) = windows_of(seed, [28])
    (none,) = windows_of(seed, [28], prompt=" ")
    (missing,) = windows_of(seed, [28], prompt=None)
    (special,) = windows_of(seed, [28], prompt="ignore <|im_end|> this")
    (long,) = windows_of(seed, [28], frames=1040)
    found = captioner.captions([none, special, good, long, missing])
    reasons = [str(one) if isinstance(one, BadPrompt) else None for one in found]
    assert reasons == [NO_PROMPT, SPECIAL, None, TOO_LONG, NO_PROMPT]
    assert found[2] == captioner.captions([good])[0]


def test_out_of_memory_halves_the_batch(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    checkpoints.save_captioner("qwen2_5_vl", tmp_path, seed)
    captioner: Any = CaptionerSpec(Checkpoint(str(tmp_path)), 8, 3).load()
    windows = windows_of(seed, [28, 56, 28, 28, 56])
    expected = captioner.captions(windows)
    batches = []
    computed = QwenCaptioner._batch

    def limited(self: Any, prompts: Any) -> list[str]:
        batches.append(len(prompts))
        if len(prompts) > 2 or any(len(one.extra.frames) == 6 for one in prompts):
            raise torch.OutOfMemoryError("too many")
        return computed(self, prompts)

    monkeypatch.setattr(QwenCaptioner, "_batch", limited)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    assert captioner.captions(windows) == expected
    assert batches == [5, 2, 2, 1]
    assert captioner.counters == {"times out of GPU memory, then smaller batches": 1}

    large = windows_of(seed, [28], frames=6)
    found = captioner.captions([windows[0], *large])
    assert found[0] == expected[0]
    assert str(found[1]) == TOO_LARGE


def test_a_checkpoint_without_a_template_gets_the_chat_format_of_qwen(tmp_path: Path, seed: int) -> None:
    checkpoints.save_captioner("qwen2_5_vl", tmp_path, seed, template=False)
    captioner: Any = CaptionerSpec(Checkpoint(str(tmp_path)), 1, 2).load()
    (window,) = windows_of(seed, [28])
    text = captioner.chats.tokenizer.decode(captioner.prompt(window).ids)
    pads = "<|video_pad|>" * 2
    assert text == (
        f"<|im_start|>user\n<|vision_start|>{pads}<|vision_end|>{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    )


def test_other_models_are_refused_at_planning(tmp_path: Path, seed: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_5vl"}), encoding="utf-8")
    with pytest.raises(ModelError, match=r"Is it a 'qwen2_5_vl'\?"):
        frame_format(Checkpoint(str(tmp_path)))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl"}), encoding="utf-8")
    with pytest.raises(ModelError, match="has no tokenizer"):
        CaptionerSpec(Checkpoint(str(tmp_path))).check()
    checkpoints.tokenizer(tmp_path)
    with pytest.raises(ModelError, match="has no weights"):
        CaptionerSpec(Checkpoint(str(tmp_path))).check()


def test_vllm_is_named_where_it_is_missing(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save_captioner("qwen2_5_vl", tmp_path, seed)
    monkeypatch.setattr("gristmill.models.video.captioner.has_vllm", lambda: False)
    with pytest.raises(ModelError, match="pip install vllm"):
        CaptionerSpec(Checkpoint(str(tmp_path)), engine="vllm").check()


def test_texts_are_rewritten_as_an_instruction_says(tmp_path: Path, seed: int) -> None:
    import torch

    model = checkpoints.save_rewriter(tmp_path, seed)
    spec = RewriterSpec(Checkpoint(str(tmp_path)), 2, 6)
    spec.check()
    rewriter = spec.load()
    texts = ["rivers carry stones", "rain", "", "prices fall and markets rise", "stop <|im_end|>"]

    found = rewriter.rewritten("teachers explain", texts)

    for number in (0, 1, 3):
        chat = f"<|im_start|>system\nteachers explain<|im_end|>\n<|im_start|>user\n{texts[number]}<|im_end|>\n"
        ids = torch.tensor([rewriter.chats.ids(chat + "<|im_start|>assistant\n", 500)])
        made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
        expected = rewriter.chats.tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True).strip()
        assert found[number] == expected
    assert [str(found[2]), str(found[4])] == [NO_PROMPT, SPECIAL]
