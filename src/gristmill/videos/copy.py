"""Clips made of the packets of a video, as they are."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from gristmill.videos.audio import Sound
from gristmill.videos.decode import Orientation, orientation
from gristmill.videos.encode import BITEXACT, MOST_BYTES
from gristmill.videos.errors import BadVideo
from gristmill.videos.source import Location, as_bad_video, open_video
from gristmill.videos.stream import STEPS_BACK_S, RawFrame, microseconds, raw_frames, video_stream

if TYPE_CHECKING:
    from av import Packet

COPIED = ("h264", "hevc", "av1", "vp9", "mpeg4")
"""Video that MP4 files hold and players know."""
_REORDERED = 32
"""Packets after the end of a clip that are looked at: one of them may be shown before the end."""


def copy_clip(
    location: Location,
    start_s: float = 0.0,
    end_s: float | None = None,
    *,
    has_audio: bool = False,
    options: Mapping[str, Any] | None = None,
    size: int | None = None,
) -> bytes | None:
    """Return an MP4 file with the packets of a clip, as they are. None if that is not possible.

    It is possible if the clip begins with a key frame, if the frames of the clip need no others, if the video is stored
    upright, and if an MP4 file can hold its codec. The frames are those that `transcode` would encode.
    """
    import av

    first = next(raw_frames(location, start_s, end_s, options, file_size=size), None)
    if first is None:
        raise BadVideo("no frames in the time of the clip")
    if first.frame.pts is None or not first.frame.key_frame or orientation(first.frame) != Orientation():
        return None
    with ExitStack() as stack:
        container = stack.enter_context(open_video(location, options))
        stream = video_stream(container)
        if stream.codec_context.name not in COPIED:
            return None
        sound = Sound.opened(stack, location, options) if has_audio else None
        with as_bad_video(location):
            packets = _cut(container, stream, first, end_s)
            if packets is None:
                return None
            memory = io.BytesIO()
            with av.open(memory, "w", format="mp4", container_options=BITEXACT) as out:
                made = out.add_stream_from_template(stream)
                if sound is not None:
                    sound.begin(out, first, end_s)
                for packet in packets:
                    assert packet.pts is not None
                    packet.pts -= first.frame.pts
                    packet.dts = None if packet.dts is None else packet.dts - first.frame.pts
                    packet.stream = made
                    out.mux_one(packet)
                if sound is not None:
                    sound.write_until(None)
        return memory.getvalue()


def _cut(container: Any, stream: Any, first: RawFrame, end_s: float | None) -> list[Packet[Any]] | None:
    """The packets from a key frame on to the end of the clip. None if they do not begin or end there."""
    start = first.frame.pts
    assert start is not None
    length = None if end_s is None else microseconds(end_s) - microseconds(first.time_s)
    packets: list[Packet[Any]] = []
    size = later = 0
    for packet in _from_key(container, stream, start):
        if packet.pts is None:
            return None
        at = float((packet.pts - start) * stream.time_base)
        if at < 0:  # a frame before the key frame, which comes after it: an open group of pictures
            return None
        if length is not None and microseconds(at) >= length:
            later += 1
            if later > _REORDERED:
                break
            continue
        if later:  # a frame that needs one after the end
            return None
        size += packet.size
        if size > MOST_BYTES:
            raise BadVideo("the clip has too many bytes")
        packets.append(packet)
    return packets or None


def _from_key(container: Any, stream: Any, start: int) -> Iterator[Packet[Any]]:
    """The packets from the key frame with this time on. A seek may end after it."""
    for back in STEPS_BACK_S:
        container.seek(start - int(back / stream.time_base), stream=stream)
        has_begun = False
        for packet in container.demux(stream):
            has_begun = has_begun or (packet.pts == start and packet.is_keyframe)
            if has_begun and packet.size:
                yield packet
            if not has_begun and packet.dts is not None and packet.dts > start:
                break
        if has_begun:
            return
