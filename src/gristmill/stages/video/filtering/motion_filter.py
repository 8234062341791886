"""The stages that measure motion by the vectors of the codec, and drop clips in which little moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.lazy import np
from gristmill.stages.registry import builtin
from gristmill.stages.resources import Resources
from gristmill.stages.text.filters.columns import set_column
from gristmill.stages.text.filters.document_filter import AtLeast, DocumentFilter
from gristmill.stages.text.filters.score_filter import Filter
from gristmill.stages.video.clips import ClipStage, places_of
from gristmill.stages.video.rows import without_bad
from gristmill.tasks import DocumentBatch
from gristmill.tasks.video import CLIP, VideoTask
from gristmill.videos.errors import BadVideo
from gristmill.videos.motion import Motion, check

__all__ = ["MotionFilterStage", "MotionVectorDecodeStage"]

MEAN, LEAST, METHOD = "motion_score_global_mean", "motion_score_per_patch_min_256", "motion_method"
"""The columns of the motion of clips."""


@builtin
@dataclass(eq=False, repr=False, kw_only=True)
class MotionVectorDecodeStage(ClipStage):
    """Measures how much moves in each clip, by the motion vectors of its codec.

    - ``motion_score_global_mean``: the distance that a point moves in 1/30 s, as a share of the width plus the height
      of the frame: its mean over all points and measured frames.
    - ``motion_score_per_patch_min_256``: the same in the patch of about 256 x 256 pixels in which least moves.
    - ``motion_method``: "vectors", or "differences" where there are no or few vectors: FFmpeg exports none for HEVC,
      VP9 and AV1, and a clip whose frames are all key frames has none. Then pairs of frames are compared, and the
      distance that would explain the differences is the score, in the same unit.

    ``target_fps`` is how often motion is measured, ``target_duration_ratio`` the part of a clip that is looked at, from
    its start. ``clip_field`` is the column of encoded clips; a column of paths, such as "video", is read between the
    times of each clip. A clip that cannot be decoded is a bad record.
    """

    indifferent = ("num_cpus_per_worker", "verbose")

    target_fps: float = 2.0
    target_duration_ratio: float = 1.0
    num_cpus_per_worker: float = 1.0
    clip_field: str = CLIP
    verbose: bool = False

    def __post_init__(self) -> None:
        check(self.target_fps, self.target_duration_ratio)
        self.resources = Resources(cpus=self.num_cpus_per_worker)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.clip_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [MEAN, LEAST, METHOD]

    def process(self, task: VideoTask) -> VideoTask:
        from gristmill.tasks.arrow import number_array, string_array

        found: list[Motion] = []
        problems: dict[int, BadVideo] = {}
        for row, place in enumerate(places_of(task, self.clip_field, self.storage)):
            try:
                if place is None:
                    raise BadVideo("no clip")
                found.append(place.motion(self.target_fps, self.target_duration_ratio))
            except BadVideo as error:
                problems[row] = error
        task = without_bad(task, problems)
        set_column(task, MEAN, number_array(np.array([one.mean for one in found], dtype=np.float64)))
        set_column(task, LEAST, number_array(np.array([one.least for one in found], dtype=np.float64)))
        set_column(task, METHOD, string_array([one.method for one in found]))
        return task


class _MotionRule(AtLeast):
    """Keeps motion from a threshold on."""

    def __init__(self, least: float) -> None:
        self.least = least


class GlobalMotion(_MotionRule, builtin=True):
    """The mean motion."""

    name = "motion"
    rule_text = "motion of at least {0.least:g}"
    thresholds = {"global_mean_threshold": "least"}


class PatchMotion(_MotionRule, builtin=True):
    """The motion where least moves."""

    name = "motion in all patches"
    rule_text = "motion of at least {0.least:g} in each patch"
    thresholds = {"per_patch_min_256_threshold": "least"}


@builtin
class MotionFilterStage(Filter):
    """Drops clips whose motion is below a threshold: on average, or in the patch in which least moves.

    It reads the columns of `MotionVectorDecodeStage`. With ``score_only`` it drops none. ``num_gpus_per_worker``,
    ``motion_filter_batch_size`` and ``verbose`` are accepted for pipelines of NeMo Curator.
    """

    indifferent = ("num_gpus_per_worker", "motion_filter_batch_size", "verbose")

    def __init__(
        self,
        score_only: bool = False,
        global_mean_threshold: float = 0.00098,
        per_patch_min_256_threshold: float = 0.000001,
        num_gpus_per_worker: float = 0,
        motion_filter_batch_size: int = 256,
        verbose: bool = False,
    ) -> None:
        rules = [GlobalMotion(global_mean_threshold), PatchMotion(per_patch_min_256_threshold)]
        super().__init__(rules, [MEAN, LEAST])
        self.score_only = score_only

    def scored_rules(self) -> Sequence[tuple[DocumentFilter, bool]]:
        return [] if self.score_only else super().scored_rules()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task if self.score_only else super().process(task)
