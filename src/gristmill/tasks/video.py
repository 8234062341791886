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
PREVIEW = "preview"
"""The column of the preview of each clip: an animated WebP."""
WIDTH, HEIGHT, ROTATION = "width", "height", "rotation"
"""The columns of the size of frames, upright, and of the degrees by which stored frames are turned clockwise."""
FPS, FRAMES, DURATION = "fps", "frames", "duration_s"
"""The columns of the average rate of frames, of their number, and of the seconds that a video takes."""
VIDEO_CODEC, PIXEL_FORMAT, AUDIO_CODEC = "video_codec", "pixel_format", "audio_codec"
"""The columns of the formats. There is no audio codec without sound."""
VIDEO_BYTES = "video_bytes"
"""The column of the size of each file."""
SMALL_FRAMES = "small_frames"
"""The column of the small frames of a video for the detection of shots: bytes, 27 x 48 x 3 for each frame."""
SMALL_TIMES = "small_frame_times"
"""The column of the time of each of these frames, in seconds."""
CLIP_FRAMES = "clip_frames"
"""The column of frames of each clip: bytes, (frames, height, width, 3), RGB."""


@dataclass(repr=False)
class VideoTask(DocumentBatch):
    """A batch of videos, or of clips of one video, one per row, with everything that is known of them as columns.

    A video is a document without its bytes: a row names the file (`VIDEO`), and stages read only the parts that they
    need. A stage that splits videos returns a row per clip. Clips are documents too, so filters, accounts, excluded
    clips, deduplication and resuming work as for texts and images. Encoded clips are a column (`CLIP`), in tasks of a
    limited size.
    """
