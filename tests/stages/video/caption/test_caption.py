"""Captions of clips: windows of frames, captions, and their enhancement."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.models.video import checkpoints
from tests.stages.video.embedding.made import after, clip
from tests.videos.made import batch

pytest.importorskip("av")

from gristmill.errors import ModelError
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.video.captioner import CaptionerSpec, Window
from gristmill.stages.video.caption import (
    CaptionEnhancementStage,
    CaptionGenerationStage,
    CaptionPreparationStage,
)
from gristmill.stages.video.caption.windows import WINDOWS, prepared_windows, sample_count, windows_of
from gristmill.tasks.video import VideoTask
from gristmill.videos.decode import frames

QUESTION = "rain falls on quiet hills"


@pytest.fixture
def seed() -> int:
    drawn = random.randrange(2**31)
    print("seed", drawn)
    return drawn


@pytest.fixture
def model(tmp_path: Path, seed: int) -> str:
    checkpoints.save_captioner("qwen2_5_vl", tmp_path / "model", seed)
    return str(tmp_path / "model")


def prepared(model: str, **more: Any) -> CaptionPreparationStage:
    options = dict(prompt_text=QUESTION, sampling_fps=4, window_size=12, remainder_threshold=6, max_frame_pixels=6272)
    return CaptionPreparationStage(model=model, **{**options, **more})


def test_windows_of_frames() -> None:
    assert windows_of(3, 12, 6) == []
    assert windows_of(4, 12, 6) == [(0, 4)]
    assert windows_of(12, 12, 6) == [(0, 12)]
    assert windows_of(17, 12, 6) == [(0, 17)]
    assert windows_of(18, 12, 6) == [(0, 12), (12, 18)]
    assert windows_of(24, 12, 6) == [(0, 12), (12, 24)]
    assert windows_of(29, 12, 6) == [(0, 12), (12, 29)]
    assert sample_count(256, 30, 2) == 16
    assert sample_count(12, 30, 2) == 4
    assert sample_count(5, 30, 30) == 4


def test_windows_hold_the_frames_of_their_times(model: str, seed: int) -> None:
    data = clip(seed, 30, 12)  # 30 frames: windows of 12 and of 18
    [made] = after(
        prepared(model, remainder_threshold=7), [batch([data, clip(seed, 3, 12), b"broken"], [2.5, 0.25, 1.0])]
    )
    [windows] = prepared_windows(made)
    assert [(one.start_s, one.end_s, one.fps, len(one.frames)) for one in windows] == [
        (0, 1.0, 4.0, 4),
        (1.0, 2.5, 4.0, 6),
    ]
    assert {one.prompt for one in windows} == {QUESTION}
    size = (56, 84)
    times = [12 / 12 + place * 17 / 5 / 12 for place in range(6)]
    expected = [one.pixels for one in frames(data, times=times, size=size, resize="bicubic")]
    assert (windows[1].frames == np.array(expected)).all()
    assert [(one.position, one.reason) for one in made.account.bad] == [
        (1, "too few frames for a caption"),
        (2, "not a video of a known format"),
    ]


def test_captions_are_those_of_the_model(model: str, seed: int) -> None:
    data = [clip(seed, 24, 12), clip(seed + 1, 12, 12)]
    [task] = after(prepared(model), [batch(data, [2.0, 1.0])])
    windows = [one for row in prepared_windows(task) for one in row]
    captioner = CaptionerSpec(Checkpoint(model), 1, 5).load()
    expected = captioner.captions([Window(one.frames, one.fps, QUESTION) for one in windows])

    stage = CaptionGenerationStage(model=model, caption_batch_size=2, max_output_tokens=5)
    [found] = after(stage, [task])

    assert WINDOWS not in found.data.column_names
    assert found.data.column("caption").to_pylist() == [f"{expected[0]}\n{expected[1]}", expected[2]]
    assert found.data.column("caption_windows").to_pylist()[1] == [
        {"start_s": 0.0, "end_s": 1.0, "caption": expected[2]}
    ]


def test_tasks_that_are_computed_together_have_their_own_captions(model: str, seed: int) -> None:
    tasks = [
        made
        for number in range(3)
        for made in after(prepared(model), [batch([clip(seed + number, 12, 12)] * number, [1.0] * number)])
    ]
    stage = CaptionGenerationStage(model=model, caption_batch_size=2, max_output_tokens=4)
    alone = [after(stage, [VideoTask(data=task.data)])[0] for task in tasks]
    stage.setup()
    together: list[Any] = stage.process_batch([VideoTask(data=task.data) for task in tasks])
    assert [one.num_items for one in together] == [0, 1, 2]
    for one, other in zip(alone, together, strict=True):
        assert one.data.column("caption").to_pylist() == other.data.column("caption").to_pylist()
        assert one.data.schema == other.data.schema


def test_a_bad_prompt_costs_its_clip_only(model: str, seed: int) -> None:
    data = clip(seed, 12, 12)
    questions = pa.array([QUESTION, None, "stop <|video_pad|>", "word " * 600, "rivers"])
    task = batch([data] * 5, [1.0] * 5, question=questions)
    stages = [prepared(model, prompt_field="question"), CaptionGenerationStage(model=model, max_output_tokens=4)]
    [found] = after(stages[1], after(stages[0], [task]))
    assert found.data.column("question").to_pylist() == [QUESTION, "rivers"]
    assert [(one.position, one.reason) for one in found.account.bad] == [
        (1, "no prompt"),
        (2, "the prompt has a special token"),
        (3, "the prompt is too long"),
    ]


def test_a_second_caption_sees_the_first(model: str, seed: int) -> None:
    [task] = after(prepared(model), [batch([clip(seed, 12, 12)])])
    [[window]] = prepared_windows(task)
    captioner = CaptionerSpec(Checkpoint(model), 1, 4).load()
    [first] = captioner.captions([Window(window.frames, window.fps, QUESTION)])
    [expected] = captioner.captions([Window(window.frames, window.fps, f"science\n{first}")])
    stage = CaptionGenerationStage(
        model=model, max_output_tokens=4, generate_stage2_caption=True, stage2_prompt_text="science"
    )
    [found] = after(stage, [task])
    assert found.data.column("caption").to_pylist() == [expected]


def test_captions_are_rewritten(tmp_path: Path, seed: int) -> None:
    checkpoints.save_rewriter(tmp_path, seed)
    stage = CaptionEnhancementStage(model=str(tmp_path), max_output_tokens=5, prompt_text="teachers explain")
    captions = pa.array(["rivers carry stones", None, " ", "stop <|im_end|>", "rain"])
    [found] = after(stage, [batch([b""] * 5, caption=captions)])
    rewriter = stage.spec.load()
    first, last = rewriter.rewritten("teachers explain", ["rivers carry stones", "rain"])
    assert found.data.column("enhanced_caption").to_pylist() == [first, None, None, last]
    assert [(one.position, one.reason) for one in found.account.bad] == [(3, "the prompt has a special token")]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="prompt_variant must be one of"):
        CaptionPreparationStage(prompt_variant="films")
    with pytest.raises(ValueError, match="remainder_threshold from 1 to window_size"):
        CaptionPreparationStage(window_size=10, remainder_threshold=11)
    with pytest.raises(ValueError, match="model_variant must be one of"):
        CaptionGenerationStage(model_variant="qwen9")
    with pytest.raises(ValueError, match="caption_batch_size must be a whole number"):
        CaptionGenerationStage(caption_batch_size=0)
    with pytest.raises(ModelError, match="there is no folder"):
        CaptionEnhancementStage(model="./nothing").check_needs()
