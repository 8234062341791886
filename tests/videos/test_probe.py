"""What is known of videos, and why they cannot be used."""

from __future__ import annotations

import contextlib
import http.server
import os
import struct
import threading

import pytest

pytest.importorskip("av")

from tests.videos import corpus

from gristmill.videos.errors import BadVideo
from gristmill.videos.probe import probe

CODECS = [
    ("libx264", "mp4", "h264"),
    ("libx265", "mp4", "hevc"),
    ("libvpx-vp9", "webm", "vp9"),
    ("libsvtav1", "mp4", "av1"),
    ("mpeg4", "avi", "mpeg4"),
    ("libx264", "matroska", "h264"),
    ("libx264", "mpegts", "h264"),
    ("libx264", "flv", "h264"),
    ("mpeg2video", "mpeg", "mpeg2video"),
    ("libx264", "h264", "h264"),
]


@pytest.mark.parametrize(("codec", "container", "name"), CODECS)
def test_the_container_of_each_format_is_read(video, codec, container, name):
    info = probe(video(25, codec, 25, container))
    assert (info.width, info.height, info.video_codec, info.pixel_format) == (128, 64, name, "yuv420p")
    assert info.fps == pytest.approx(25, abs=0.01) and info.duration_s == pytest.approx(1, abs=0.09)
    assert abs(info.frames - 25) <= 2 and info.audio_codec is None and info.rotation == 0
    assert info.video_bytes == len(video(25, codec, 25, container))


@pytest.mark.parametrize(("turned", "rotation"), [(90, 270), (180, 180), (270, 90)])
def test_the_size_is_upright(video, turned, rotation):
    info = probe(video(5, turned=turned))
    assert (info.width, info.height, info.rotation) == (128, 64, rotation)


def test_sound_and_a_variable_rate_are_known(video):
    assert probe(video(25, audio="aac")).audio_codec == "aac"
    assert not probe(video(25, audio="aac")).is_variable_rate
    info = probe(video(20, ticks=[n * n * 10 for n in range(20)]))
    assert info.is_variable_rate and info.frames == 20 and info.duration_s > 3.6


def test_a_video_of_one_frame(video):
    info = probe(video(1))
    assert info.frames == 1 and info.duration_s == pytest.approx(0.04)


def bad_videos() -> dict[str, tuple[bytes, str]]:
    plain = corpus.video(30)
    key = "76a6c65c5ea762046bd749a2e632ccbb"
    locked = {"encryption_scheme": "cenc-aes-ctr", "encryption_key": key, "encryption_kid": key}
    return {
        "empty": (b"", "empty"),
        "text": (b"<html>not found</html>" * 100, "not a video of a known format"),
        "noise": (os.urandom(5000), "not a video of a known format"),
        "playlist": (b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n/etc/passwd\n", "not a video of a known format"),
        "list of files": (b"ffconcat version 1.0\nfile /etc/passwd\n", "not a video of a known format"),
        "without its index": (plain[: plain.index(b"moov") - 4], "truncated"),
        "cut in its index": (plain[:-200], "truncated"),
        "header only": (plain[:30], "truncated"),
        "sound only": (corpus.sound_only(), "no video stream"),
        "no frames": (corpus.without_samples(), "no frames"),
        "16K wide": (corpus.huge(), "too many pixels"),
        "unknown codec": (plain.replace(b"avc1", b"zzzz"), "a codec that cannot be decoded"),
        "encrypted": (corpus.video(10, muxer=locked), "encrypted"),
    }


@pytest.mark.parametrize("name", bad_videos())
def test_bad_videos_have_a_reason(tmp_path, name):
    data, reason = bad_videos()[name]
    path = tmp_path / "v.mp4"
    path.write_bytes(data)
    for location in (str(path), data):
        with pytest.raises(BadVideo) as error:
            probe(location)
        assert error.value.reason == reason


def test_files_that_are_none(tmp_path):
    os.mkfifo(tmp_path / "fifo.mp4")
    for name, reason in [("none.mp4", "the file does not exist (ENOENT)"), ("", "a folder, not a file (EISDIR)")]:
        with pytest.raises(BadVideo) as error:
            probe(str(tmp_path / name))
        assert error.value.reason == reason
    with pytest.raises(BadVideo):
        probe(str(tmp_path / "fifo.mp4"))


def test_no_other_file_is_opened(tmp_path, video):
    """A file of commands for FFmpeg names another one, which exists."""
    (tmp_path / "other.mp4").write_bytes(video(5))
    for name, text in [
        ("a.mp4", f"ffconcat version 1.0\nfile '{tmp_path}/other.mp4'\n"),
        ("a.m3u8", f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{tmp_path}/other.mp4\n#EXT-X-ENDLIST\n"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(BadVideo):
            probe(str(tmp_path / name))
    odd = tmp_path / "concat:a|b.mp4"
    odd.write_bytes(video(5))
    assert probe(str(odd)).frames == 5


def test_the_limit_of_pixels_holds_where_the_container_declares_less(video):
    """The header of the container is small, and that of the codec is not."""
    data = bytearray(corpus.huge())
    data[12:16] = (64).to_bytes(2, "little") * 2
    with pytest.raises(BadVideo):
        probe(bytes(data))
    with pytest.raises(BadVideo, match="too many pixels"):
        probe(video(5), max_pixels=128 * 64 - 1)
    assert probe(video(5), max_pixels=128 * 64)


def test_a_damaged_duration_of_centuries_is_measured_instead(video):
    damaged = bytearray(video(50, container="matroska"))
    place = damaged.index(b"\x44\x89\x88") + 3  # the duration in milliseconds
    damaged[place : place + 8] = struct.pack(">d", 1e13)
    found = probe(bytes(damaged))
    assert found.frames == 50 and found.duration_s == pytest.approx(2, abs=0.1)


def test_a_damaged_length_that_needs_too_much_memory_is_the_fault_of_the_video(video):
    damaged = bytearray(video(25))
    place = damaged.index(b"stts") + 8  # how many times of frames there are
    damaged[place : place + 4] = b"\x7f\xff\xff\xff"
    with pytest.raises(BadVideo, match="asks for too much memory") as error:
        probe(bytes(damaged))
    assert not error.value.may_pass  # it costs this video, not the run


def test_only_parts_of_a_remote_file_are_read(tmp_path):
    import fsspec

    from gristmill.videos.decode import frames

    big = corpus.indexed_first(corpus.video(60, options={"crf": "1"}, size=(256, 128)))
    padded = big + (50 << 20).to_bytes(4, "big") + b"free" + bytes((50 << 20) - 8)
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/v.mp4", padded)
    read = 0
    kind = type(memory.open("/v.mp4"))
    original = kind.read

    def counted(self, *args):
        nonlocal read
        data = original(self, *args)
        read += len(data)
        return data

    kind.read = counted
    try:
        assert probe("memory://v.mp4").frames == 60
        assert len(list(frames("memory://v.mp4", 0, 1))) == 25
    finally:
        kind.read = original
        memory.rm("/v.mp4")
    assert read < 8 << 20


def test_web_servers_that_fail_or_send_no_parts(tmp_path, video):
    pytest.importorskip("aiohttp")
    plain = video(30)
    begin = plain.index(b"mdat") - 4
    size = int.from_bytes(plain[begin : begin + 4], "big")
    files = {"/far.mp4": plain[:begin] + (5 << 20).to_bytes(4, "big") + b"free" + bytes((5 << 20) - 8) + plain[begin:]}
    assert size and b"moov" in files["/far.mp4"][5 << 20 :]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status = {"/far.mp4": 200, "/busy.mp4": 503, "/secret.mp4": 403}.get(self.path, 404)
            self.send_response(status)
            self.send_header("Content-Length", str(len(files.get(self.path, b""))))
            self.end_headers()
            if self.command == "GET":
                with contextlib.suppress(OSError):
                    self.wfile.write(files.get(self.path, b""))

        do_HEAD = do_GET

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    port = server.server_port
    try:
        for name, reason, may_pass in [
            ("far.mp4", "the server does not send parts of files", False),
            ("busy.mp4", "the server failed", True),
            ("secret.mp4", "the server refused with 403", False),
            ("none.mp4", "the file does not exist (ENOENT)", False),
        ]:
            with pytest.raises(BadVideo) as error:
                probe(f"http://127.0.0.1:{port}/{name}")
            assert (error.value.reason, error.value.may_pass) == (reason, may_pass)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    with pytest.raises(BadVideo) as error:
        probe(f"http://127.0.0.1:{port}/far.mp4")
    assert (error.value.reason, error.value.may_pass) == ("the connection failed", True)
