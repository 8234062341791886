"""Filters of clips: their scores, and the stages that run them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from tests.videos.made import batch, blank, encoded, panned, still, with_bars

from gristmill.stages.text.filters import Filter, Score, ScoreFilter
from gristmill.stages.video.clips import FRAMES, INFO, ClipPlace, Clips
from gristmill.stages.video.filtering import (
    BlankClipFilter,
    ClipFilter,
    ClipFrameRateFilter,
    ClipLengthFilter,
    ClipShortSideFilter,
    ClipTextOverlayFilter,
    LetterboxFilter,
    MotionFilter,
    MotionFilterStage,
    MotionVectorDecodeStage,
    StaticClipFilter,
)
from gristmill.tasks import DocumentBatch

FAST = {"preset": "veryfast"}


@pytest.fixture(scope="module")
def clips() -> dict[str, bytes]:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    half = [*still(seed, 12), *panned(seed, 18, 4.0)]
    return {
        "moving": encoded(panned(seed, 24), options=FAST),
        "black": encoded(blank(0, 24), options=FAST),
        "frozen": encoded(still(seed, 24), options=FAST),
        "at the end": encoded(half, options=FAST),
        "boxed": encoded(with_bars(panned(seed, 24), 12), options=FAST),
        "all key frames": encoded(panned(seed, 24), options={**FAST, "g": "1"}),
        "VP9": encoded(panned(seed, 24), "libvpx-vp9", options={"deadline": "realtime", "cpu-used": "8"}),
    }


def scored(one: ClipFilter, clips: dict[str, bytes]) -> dict[str, float]:
    made = Score(one, "score").process(batch(list(clips.values())))
    return dict(zip(clips, made.data.column("score").to_pylist(), strict=True))


def kept(stage: Any, task: DocumentBatch) -> tuple[list[int], list[str]]:
    """The rows that stay, and the reasons of the others."""
    stage.setup()
    made = stage.process(task)
    reasons = [reason for dropped in made.account.dropped for reason in dropped.reasons]
    return [int(name[-4:]) for name in made.data.column("clip_id").to_pylist()], reasons


def test_filters_tell_blank_frozen_boxed_and_moving_clips_apart(clips: dict[str, bytes]) -> None:
    blanks = scored(BlankClipFilter(), clips)
    assert blanks.pop("black") > 0.99
    assert max(blanks.values()) < 0.6
    static = scored(StaticClipFilter(), clips)
    assert static["black"] == static["frozen"] == 1
    assert static["at the end"] == pytest.approx(3 / 7, abs=0.15)
    assert static["moving"] == static["VP9"] == 0
    bars = scored(LetterboxFilter(), clips)
    assert bars.pop("boxed") == pytest.approx(24 / 90, abs=0.03)
    assert max(bars.values()) == 0
    moving = scored(MotionFilter(), clips)
    assert {name for name, score in moving.items() if score < 0.00098} == {"black", "frozen"}


def test_a_score_filter_runs_all_of_them_and_decodes_each_clip_once(
    clips: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    original = ClipPlace.frames

    def frames(self: ClipPlace, *args: Any, **kwargs: Any) -> Any:
        decoded.append(len(self.location))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(ClipPlace, "frames", frames)
    filters = [ClipShortSideFilter(80), MotionFilter(), BlankClipFilter(), StaticClipFilter(), LetterboxFilter()]
    rows, reasons = kept(ScoreFilter(filters, keep_scores=True), batch(list(clips.values())))
    names = list(clips)
    assert [names[row] for row in rows] == ["moving", "at the end", "all key frames", "VP9"]
    assert reasons == ["motion", "motion", "letterbox"]
    assert len(decoded) == len(set(decoded)) <= len(clips) - 2, "clips that motion dropped are not decoded for looks"


def test_each_threshold_is_inclusive_and_can_be_changed(clips: dict[str, bytes]) -> None:
    task = batch([clips["moving"], clips["frozen"]], [3.0, 5.0])
    assert kept(ScoreFilter(ClipLengthFilter(3.0, 4.0)), task) == ([0], ["too long"])
    assert kept(ScoreFilter(ClipLengthFilter(3.5)), batch(list(clips.values())[:1], [3.0])) == ([], ["too short"])
    assert kept(ScoreFilter(ClipShortSideFilter(90, 90)), task) == ([0, 1], [])
    assert kept(ScoreFilter(ClipShortSideFilter(91)), task) == ([], ["too small"] * 2)
    assert kept(ScoreFilter(ClipFrameRateFilter(31)), task) == ([], ["too few frames per second"] * 2)
    assert kept(ScoreFilter(ClipFrameRateFilter(30, 30)), task) == ([0, 1], [])
    assert ClipLengthFilter(2, 10).rule() == "a length of 2 to 10 seconds"
    assert ClipLengthFilter(2).rule() == "a length of at least 2 seconds"
    with pytest.raises(ValueError, match="above the upper one"):
        ClipLengthFilter(5, 2)


def test_clips_that_cannot_be_read_are_bad_records(clips: dict[str, bytes]) -> None:
    task = batch([clips["moving"], None, b"no clip", clips["moving"][:500], clips["VP9"]])
    for stage in (ScoreFilter([BlankClipFilter(), MotionFilter()]), MotionVectorDecodeStage()):
        made: Any = stage.process(task.slice(0, 5))
        assert made.num_items == 2
        assert len(made.account.bad) == 3
        assert not made.account.dropped
        assert made.account.bad[0].reason == "no clip"
    late: Any = ScoreFilter([ClipLengthFilter(0.5), BlankClipFilter()]).process(task)
    assert (late.num_items, len(late.account.bad)) == (2, 3)


def test_a_clip_is_read_from_its_video_too(clips: dict[str, bytes], tmp_path: Any) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(encoded([*still(1, 30), *panned(1, 30)], options=FAST))
    task = batch([None, None])
    task.data = task.data.drop_columns(["video", "start_s", "end_s"])
    for name, values in {"video": [str(path)] * 2, "start_s": [0.0, 1.0], "end_s": [1.0, 2.0]}.items():
        import pyarrow as pa

        task.data = task.data.append_column(name, pa.array(values))
    assert kept(ScoreFilter(StaticClipFilter(), text_field="video"), task) == ([1], ["static_clip"])
    made = MotionVectorDecodeStage(clip_field="video").process(task)
    assert (made.data.column("motion_score_global_mean").to_numpy() > 0.00098).tolist() == [False, True]


def test_motion_is_stored_and_filtered(clips: dict[str, bytes]) -> None:
    decoded = MotionVectorDecodeStage(target_fps=4.0).process(batch(list(clips.values())))
    methods = dict(zip(clips, decoded.data.column("motion_method").to_pylist(), strict=True))
    assert methods == {name: "differences" if name in ("all key frames", "VP9") else "vectors" for name in clips}
    names = list(clips)
    rows, reasons = kept(MotionFilterStage(), decoded.slice(0, len(clips)))
    assert {names[row] for row in range(len(names)) if row not in rows} == {"black", "frozen"}
    assert reasons == ["motion"] * 2
    assert kept(MotionFilterStage(score_only=True), decoded.slice(0, len(clips)))[0] == list(range(len(names)))
    strict = MotionFilterStage(global_mean_threshold=0.0, per_patch_min_256_threshold=1.0)
    assert kept(strict, decoded.slice(0, len(clips))) == ([], ["motion in all patches"] * len(names))
    rules = [rule.threshold_values() for rule, _ in MotionFilterStage().scored_rules()]
    assert rules == [
        {"global_mean_threshold": ("least", 0.00098)},
        {"per_patch_min_256_threshold": ("least", 1e-06)},
    ]


def test_text_over_the_picture_is_found() -> None:
    pytest.importorskip("rapidocr")
    font = ImageFont.load_default(26)

    def titled() -> Any:
        for frame in panned(3, 12, 1.0, 320, 180, 40):
            image = Image.fromarray(frame // 3)
            ImageDraw.Draw(image).text((20, 130), "SUBSCRIBE NOW", font=font, fill="white")
            yield np.asarray(image)

    plain = encoded((frame // 3 for frame in panned(3, 12, 1.0, 320, 180, 40)), options=FAST)
    scores = scored(ClipTextOverlayFilter(), {"titled": encoded(titled(), options=FAST), "plain": plain})
    assert scores["titled"] > 0.05
    assert scores["plain"] < 0.01


def test_a_filter_of_a_user_scores_frames(clips: dict[str, bytes]) -> None:
    class Dark(ClipFilter):
        def score_clips(self, clips: Clips) -> Any:
            return np.array([frames.mean() for frames in clips.frames()])

        def keep_document(self, score: float) -> bool:
            return score >= 20

    assert kept(ScoreFilter(Dark()), batch([clips["black"], clips["moving"]])) == ([1], ["dark"])

    class Nothing(ClipFilter):
        def keep_document(self, score: float) -> bool:
            return True

    with pytest.raises(TypeError, match="score_clips"):
        ScoreFilter(Nothing())
    stored = Score(Dark(), "light").process(batch([clips["moving"]]))
    assert kept(Filter(lambda light: light > 20, "light"), stored) == ([0], [])


def test_what_was_read_of_clips_stays_with_those_that_are_kept(clips: dict[str, bytes]) -> None:
    task, found = Clips.of(batch(list(clips.values())), FRAMES)
    mask = np.array([name in ("black", "boxed") for name in clips])
    left, again = Clips.of(task.keep(mask), FRAMES)
    assert left.num_items == len(again) == 2
    frames = list(found.frames())
    assert all((a == frames[b]).all() for a, b in zip(again.frames(), np.flatnonzero(mask), strict=True))
    assert not again.load(INFO)
    assert [info.width for info in again.infos] == [160, 160]
