"""A corpus of real videos for the benchmarks: 200 variants of clips out of packages, and two long 1080p files.

    nice -n 19 python benchmarks/video/corpus.py WORK [--files 200] [--no-long]

Each file is a part of a real clip (sources.py), encoded again: H.264, HEVC, VP9, AV1 and MPEG-4, in MP4, MKV, WebM and
AVI; constant and variable frame rate, upright and turned, with and without audio, 90 to 1280 pixels high, 10 to 20 s.
Every fortieth is five others in a row, joined without encoding. WORK/corpus.json lists them with their frames, at most
60,000 in all. WORK/long has the same 30 s of 1080p H.264 joined to 3 and to 30 minutes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from sources import clips

FILES = 200
MOST_FRAMES = 60_000
LEAST_FRAMES = 100
"""Shorter clips are left out."""
JOINED = 40
"""Every so many files one is joined of others, without encoding."""
LONG = {"3min": 6, "30min": 60}
"""How many times the 30 s clip is repeated."""
CODECS: dict[str, tuple[str, str, dict[str, str]]] = {
    "h264": ("libx264", "mp4", {"preset": "ultrafast", "crf": "26"}),
    "h264-mkv": ("libx264", "mkv", {"preset": "superfast", "crf": "24", "g": "48"}),
    "hevc": ("libx265", "mp4", {"preset": "ultrafast", "crf": "28", "x265-params": "log-level=error:pools=1"}),
    "vp9": ("libvpx-vp9", "webm", {"deadline": "realtime", "cpu-used": "8", "crf": "40", "b": "0"}),
    "av1": ("libsvtav1", "mp4", {"preset": "12", "crf": "45", "svtav1-params": "lp=1"}),
    "mpeg4": ("mpeg4", "avi", {"qscale": "6"}),
}
ORDER = ("h264", "hevc", "h264-mkv", "vp9", "h264", "av1", "h264", "h264-mkv", "hevc", "mpeg4", "h264", "vp9")
HEIGHTS = (270, 180, 360, 270, 180, 480, 270, 90, 360, 270, 720)
SECONDS = (10, 12, 10, 16, 10, 20, 11)
TONE = 440.0


@dataclass
class Variant:
    """A file of the corpus: what it is made of, and how it is encoded."""

    file: str
    clip: str
    start: int
    """The first frame in the clip."""
    frames: int
    fps: str
    codec: str
    height: int
    step: int = 1
    """1 takes every frame of the clip, 2 every second one."""
    rotation: int = 0
    is_variable: bool = False
    has_audio: bool = True


def variants(files: int, found: dict[str, tuple[int, Fraction]]) -> list[Variant]:
    """Return what to encode, always the same: of each clip (its frames and frame rate) parts in turn."""
    names = sorted(found)
    made = []
    for n in range(files - files // JOINED):
        name = names[n % len(names)]
        length, rate = found[name]
        step = 2 if rate > 15 and n % 3 else 1
        wanted = int(SECONDS[n % len(SECONDS)] * rate)
        codec = ORDER[n % len(ORDER)]
        made.append(
            Variant(
                file=f"{n:03}-{codec}.{CODECS[codec][1]}",
                clip=name,
                start=(n // len(names)) * int(rate * 2) % max(1, length - wanted // 2),
                frames=wanted // step,
                fps=str(rate / step),
                codec=codec,
                height=HEIGHTS[n % len(HEIGHTS)],
                step=step,
                rotation=90 * (1 + n // 7 % 3) if n % 7 == 3 and CODECS[codec][1] == "mp4" else 0,
                is_variable=n % 5 == 2 and codec in ("h264", "h264-mkv"),
                has_audio=n % 4 != 1 and codec in ("h264", "h264-mkv", "hevc"),
            )
        )
    return made


def make(work: Path, files: int) -> list[dict[str, Any]]:
    """Encode the files that are not there yet. Return them all as plain values."""
    sources = clips(work)
    sizes = {name: measured(path) for name, path in sources.items() if "damaged" not in name}
    usable = {name: sources[name] for name, (length, _) in sizes.items() if length >= LEAST_FRAMES}
    wanted = variants(files, {name: sizes[name] for name in usable})
    folder = work / "corpus"
    folder.mkdir(exist_ok=True)
    cpu = time.process_time()
    made = []
    for name, path in sorted(usable.items()):
        ours = [one for one in wanted if one.clip == name]
        if all((folder / one.file).exists() for one in ours):
            continue
        pictures = list(decoded(path, max(one.start + one.frames * 2 for one in ours)))
        for one in ours:
            encode(folder / one.file, one, pictures)
        print(f"{name}: {len(ours)} files, {time.process_time() - cpu:.0f} s of CPU time so far", flush=True)
    for one in wanted:
        made.append(asdict(one) | {"bytes": (folder / one.file).stat().st_size})
    plain = [one for one in made if one["codec"] == "h264" and not one["rotation"] and not one["is_variable"]]
    for n in range(files // JOINED):
        parts = [one for one in plain if one["height"] == 270 and one["clip"] == plain[n]["clip"]][:5] or plain[
            n : n + 1
        ]
        name = f"{len(wanted) + n:03}-joined.mp4"
        join([folder / one["file"] for one in parts] * (5 // len(parts)), folder / name)
        made.append(
            parts[0]
            | {
                "file": name,
                "frames": sum(one["frames"] for one in parts) * (5 // len(parts)),
                "bytes": (folder / name).stat().st_size,
            }
        )
    return made


def measured(path: Path) -> tuple[int, Fraction]:
    """Return the frames and the frame rate of a clip, by reading its packets."""
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = sum(1 for packet in container.demux(stream) if packet.size)
        return packets, Fraction(stream.average_rate or stream.guessed_rate or 25).limit_denominator(1001)


def decoded(path: Path, most: int) -> Iterator[Any]:
    """Yield the first frames of a clip, at most 720 pixels high, as yuv420p."""
    import av

    with av.open(str(path)) as container:
        container.streams.video[0].thread_type = "AUTO"
        for number, frame in enumerate(container.decode(video=0)):
            if number >= most:
                break
            height = min(720, frame.height)
            yield frame.reformat(even(frame.width * height / frame.height), even(height), "yuv420p")


def even(side: float) -> int:
    """Return a side as encoders take it: even, at least 16."""
    return max(16, int(side) // 2 * 2)


def encode(path: Path, one: Variant, pictures: list[Any]) -> None:
    """Write a file of the corpus: frames of the clip from its first one on, and again from its beginning."""
    import av

    encoder, _, options = CODECS[one.codec]
    first = pictures[0]
    rate = Fraction(one.fps)
    part = path.with_name(f".part-{path.name}")
    with av.open(str(part), "w") as out:
        stream = out.add_stream(encoder, rate=rate, options=options)
        stream.height = even(min(one.height, first.height))
        stream.width = even(first.width * stream.height / first.height)
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        if one.rotation:
            stream.set_display_rotation(float(one.rotation))
        sound = out.add_stream("aac", rate=16000, layout="mono") if one.has_audio else None
        for number in range(one.frames):
            if one.is_variable and number > one.frames // 2 and number % 3 == 1 and number != one.frames - 1:
                continue
            picture = pictures[(one.start + number * one.step) % len(pictures)]
            frame = picture.reformat(stream.width, stream.height)
            frame.pts, frame.time_base, frame.pict_type = number, 1 / rate, 0
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
        if sound is not None:
            for samples in tone(float(one.frames / rate)):
                out.mux(sound.encode(samples))
            out.mux(sound.encode())
    part.rename(path)


def tone(seconds: float) -> Iterable[Any]:
    """Yield a tone as frames of audio."""
    import av
    import numpy as np

    total, size = int(seconds * 16000), 1024
    for start in range(0, total, size):
        at = np.arange(start, start + size) / 16000
        frame = av.AudioFrame.from_ndarray(
            (np.sin(at * TONE * 6.283) * 0.2).astype(np.float32)[None], format="fltp", layout="mono"
        )
        frame.sample_rate, frame.pts, frame.time_base = 16000, start, Fraction(1, 16000)
        yield frame


def join(parts: Iterable[Path], path: Path) -> None:
    """Write the packets of files of one encoding into one file, without encoding."""
    import av

    if path.exists():
        return
    partial = path.with_name(f".part-{path.name}")
    with av.open(str(partial), "w") as out:
        streams: list[Any] = []
        offset = Fraction(0)
        for part in parts:
            with av.open(str(part)) as source:
                if not streams:
                    streams = [out.add_stream_from_template(source.streams.video[0])]
                video = source.streams.video[0]
                base = video.time_base
                end = first = None
                for packet in source.demux(video):
                    if packet.dts is None:
                        continue
                    first = packet.dts if first is None else first
                    end = max(end or 0, packet.pts + (packet.duration or 0))
                    shift = int(offset / base)
                    packet.dts, packet.pts = packet.dts + shift, packet.pts + shift
                    packet.stream = streams[0]
                    out.mux(packet)
                offset += Fraction(end or 0) * base
    partial.rename(path)


def long_files(work: Path) -> dict[str, Path]:
    """Return the long files by name, made if they are not there yet."""
    folder = work / "long"
    folder.mkdir(exist_ok=True)
    source = clips(work)["bunny-1080p.mp4"]
    made = {name: folder / f"{name}.mp4" for name in LONG}
    for name, times in LONG.items():
        join([source] * times, made[name])
    return made


def corpus(work: Path) -> list[dict[str, Any]]:
    """Return the files of the corpus as plain values; it must have been made."""
    listed = work / "corpus.json"
    if not listed.exists():
        raise SystemExit(f"{listed} is missing: run python benchmarks/video/corpus.py {work} first")
    return list(json.loads(listed.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--no-long", action="store_true", help="do not make the files of 3 and 30 minutes")
    args = parser.parse_args()
    made = make(args.work, args.files)
    frames = sum(one["frames"] for one in made)
    if frames > MOST_FRAMES:
        raise SystemExit(f"{frames:,} frames are more than {MOST_FRAMES:,}")
    (args.work / "corpus.json").write_text(json.dumps(made, indent=1))
    size = sum(one["bytes"] for one in made)
    print(f"{len(made)} files, {frames:,} frames, {size / 1e6:.0f} MB, {time.process_time():.0f} s of CPU time")
    if not args.no_long:
        for path in long_files(args.work).values():
            print(f"{path}: {path.stat().st_size / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
