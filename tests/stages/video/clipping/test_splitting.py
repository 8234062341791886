"""Which clips videos are split into."""

from __future__ import annotations

import math
import random
import secrets
from typing import Any

import pyarrow as pa
import pytest

from gristmill.stages.video.clipping import FixedStrideExtractorStage
from gristmill.stages.video.clipping.spans import CLIPS_OF_TASK
from gristmill.tasks import VideoTask
from gristmill.tasks.document import ID


def videos(*durations: float, **columns: Any) -> VideoTask:
    names = [f"v{n}.mp4" for n in range(len(durations))]
    table = {"video": [f"/in/{name}" for name in names], "video_id": names, "duration_s": list(durations), **columns}
    return VideoTask(data=pa.table({**table, ID: [f"/in/{name}#0" for name in names]}), task_id="0")


def clips(stage: FixedStrideExtractorStage, task: VideoTask) -> list[dict[str, Any]]:
    found = list(stage.process(task))
    made = sum(one.account.made for one in found)
    dropped = sum(len(one.reasons) for part in found for one in part.account.dropped)
    rows = [row for one in found for row in one.to_pylist()]
    assert task.num_items + made == len(rows) + dropped
    return rows


def spans(stage: FixedStrideExtractorStage, *durations: float) -> list[tuple[float, float]]:
    return [(row["start_s"], row["end_s"]) for row in clips(stage, videos(*durations))]


def test_clips_of_a_fixed_length():
    assert spans(FixedStrideExtractorStage(10, 10, 2), 25) == [(0, 10), (10, 20), (20, 25)]
    assert spans(FixedStrideExtractorStage(10, 10, 6), 25) == [(0, 10), (10, 20)]
    assert spans(FixedStrideExtractorStage(4, 2, 4), 9) == [(0, 4), (2, 6), (4, 8)]
    assert spans(FixedStrideExtractorStage(2, 5, 1), 12) == [(0, 2), (5, 7), (10, 12)]
    assert spans(FixedStrideExtractorStage(10, 10, 2, limit_clips=2), 100) == [(0, 10), (10, 20)]
    assert spans(FixedStrideExtractorStage(0.1, 0.1, 0), 0.3) == [(0, 0.1), (0.1, 0.2), (0.2, 0.3)]


def test_clips_have_names_ids_and_the_fields_of_their_video():
    rows = clips(FixedStrideExtractorStage(10, 10, 2), videos(25, 4, title=["long", "short"]))
    assert [row[ID] for row in rows] == ["/in/v0.mp4#0/0", "/in/v0.mp4#0/1", "/in/v0.mp4#0/2", "/in/v1.mp4#0/0"]
    names = ["v0.mp4@0.000-10.000", "v0.mp4@10.000-20.000", "v0.mp4@20.000-25.000", "v1.mp4@0.000-4.000"]
    assert [row["clip_id"] for row in rows] == names
    assert [row["title"] for row in rows] == ["long"] * 3 + ["short"]


def test_a_video_without_clips_is_dropped_with_a_reason():
    found = list(FixedStrideExtractorStage(10, 10, 2).process(videos(1, 30, 0)))
    assert [reason for one in found for part in one.account.dropped for reason in part.reasons] == ["too short"] * 2
    dropped = [name for one in found for part in one.account.dropped for name in part.rows["video_id"].to_pylist()]
    assert dropped == ["v0.mp4", "v2.mp4"]
    only = list(FixedStrideExtractorStage(10, 10, 2).process(videos(1)))
    assert len(only) == 1 and only[0].num_items == 0 and len(only[0].account.dropped) == 1
    assert {"clip_id", "start_s", "end_s"} <= set(only[0].columns)


def test_the_clips_of_a_long_video_come_in_several_tasks_of_one_video():
    found = list(FixedStrideExtractorStage(1, 1, 1).process(videos(100, 3)))
    assert [one.num_items for one in found] == [32, 32, 32, 4, 3]
    assert all(len(set(one.data["video_id"].to_pylist())) == 1 for one in found) and CLIPS_OF_TASK == 32
    ids = [ident for one in found for ident in one.data[ID].to_pylist()]
    assert len(set(ids)) == 103


def test_clips_are_split_again_between_their_times():
    task = videos(100, start_s=[20.0], end_s=[31.0], clip_id=["x"])
    rows = clips(FixedStrideExtractorStage(5, 5, 2), task)
    assert [(row["start_s"], row["end_s"]) for row in rows] == [(20, 25), (25, 30)]
    assert [row[ID] for row in rows] == ["/in/v0.mp4#0/0", "/in/v0.mp4#0/1"]


def test_any_settings_give_clips_within_the_video():
    seed = secrets.randbits(32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(300):
        length, stride, duration = (rng.uniform(0.1, 30) for _ in range(3))
        least = rng.uniform(0, length)
        found = spans(FixedStrideExtractorStage(length, stride, least), duration)
        assert [start for start, _ in found] == pytest.approx([n * stride for n in range(len(found))], abs=1e-5)
        assert all(least - 1e-5 <= end - start <= length + 1e-5 and end <= duration + 1e-5 for start, end in found)
        following = len(found) * stride
        assert following >= duration - 1e-5 or min(length, duration - following) < least + 1e-5


def test_wrong_settings_are_errors():
    for wrong in ({"clip_len_s": 0}, {"clip_stride_s": -1}, {"min_clip_length_s": 11}, {"clip_len_s": math.inf}):
        with pytest.raises(ValueError):
            FixedStrideExtractorStage(**wrong)
