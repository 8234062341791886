"""Videos and clips as an Arrow table: places of videos, times of clips, and what stages add to them."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.tasks.document import DocumentBatch

VIDEO = "video"
"""The column of the path or URL of each video, without secrets. Stages read the parts that they need from there."""
VIDEO_ID = "video_id"
"""The column of the user's name of each video: its path below the named folder, or its id in a manifest."""
CLIP_ID = "clip_id"
"""The column of the name of each clip, made of the video's id and the clip's times. It is the same in every run."""
START = "start_s"
"""The column of the time at which a clip begins, in seconds from the first frame of the video."""
END = "end_s"
"""The column of the time at which a clip ends: that of the first frame after it, or the end of the video."""
CLIP = "clip"
"""The column of the encoded bytes of each clip."""


@dataclass(repr=False)
class VideoTask(DocumentBatch):
    """A batch of videos, or of clips of one video, one per row, with everything that is known of them as columns.

    A video is a document without its bytes: a row names the file (`VIDEO`), and stages read only the parts that they
    need. A stage that splits videos returns a row per clip. Clips are documents too, so filters, accounts, excluded
    clips, deduplication and resuming work as for texts and images. Encoded clips are a column (`CLIP`), in tasks of a
    limited size.
    """
