"""The base class of filters of clips."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gristmill.lazy import Array
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.video.clips import FRAMES, NOTHING, Clips, cache_key
from gristmill.tasks import DocumentBatch
from gristmill.tasks.video import CLIP, END, START

__all__ = ["ClipFilter"]


class ClipFilter(DocumentFilter):
    """Scores clips and decides which to keep, in the stages `ScoreFilter`, `Score` and `Filter`.

        class DarkClipFilter(ClipFilter):
            def score_clips(self, clips: Clips) -> Array:
                return np.array([frames.mean() for frames in clips.frames()])

            def keep_document(self, score: float) -> bool:
                return score >= 20

    It reads the column "clip" (encoded bytes), unless the stage names another one. A column of paths such as "video"
    is read between the times of each clip. Clips that cannot be read are removed before they are scored, and reported
    as bad records. The score of a clip is a number, never NaN. Results depend on the clip alone.
    """

    default_field = CLIP
    other_fields = (START, END)
    reads_texts = False
    reads_of_clips: str = FRAMES
    """What it reads of clips: one of the names in `gristmill.stages.video.clips`."""

    def score_clips(self, clips: Clips) -> Array:
        """Return a score for each clip."""
        raise NotImplementedError

    def _check_scores(self) -> None:
        if type(self).score_clips is ClipFilter.score_clips:
            raise TypeError(f"{type(self).__name__} does not define score_clips: a filter of clips needs it.")

    def score_document(self, text: str) -> Any:
        raise TypeError(f"{self.name!r} scores clips, not texts: name the column of the clips.")

    def without_unreadable(self, batch: DocumentBatch, field: str) -> DocumentBatch:
        return Clips.of(batch, self.reads_of_clips, field)[0]

    def contents_of(self, batch: DocumentBatch, field: str) -> Clips:
        return Clips.of(batch, NOTHING, field)[1]

    def contents_key(self, field: str) -> str:
        return cache_key(field)

    def unreadable_in(self, contents: Any) -> Mapping[int, str]:
        return {number: error.reason for number, error in contents.load(self.reads_of_clips).items()}

    def score_contents(self, contents: Any) -> Array:
        return self.score_clips(contents)
