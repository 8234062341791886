"""Shot detection on real clips: cuts that are known, and fifty videos joined of real shots by cuts and dissolves.

    python benchmarks/video/shots.py WORK [--seed N] [--videos 50] [--threshold 0.4]

The cuts of two clips were found by other detectors (REAL). The fifty videos are joined of single shots (SHOTS), with an
order, lengths and transitions that the seed draws, and encoded as H.264 of 160 x 90. A hard cut counts as found if a
shot is found to begin within two frames of it; a dissolve if a transition is found that touches it, two frames more on
both sides. Each transition found counts once. The probabilities are computed with one window, three and eight at a
time, and must be the same numbers.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sources import clips

from gristmill.models.video.transnetv2 import TransNetV2, cuts
from gristmill.videos.decode import frames

REAL = {"bikes.mp4": ((30, 76, 137, 187, 242),), "bunny-1080p.mp4": ((284, 377, 552), (285, 378, 553))}
"""The first frames of shots, as one or the other detector counts them."""
TOLERANCE = 2
SHOTS: dict[str, tuple[tuple[int, int], ...]] = {
    "bikes.mp4": ((3, 28), (33, 74), (79, 135), (140, 185), (190, 240)),
    "bunny-1080p.mp4": ((60, 180), (180, 280), (290, 370), (385, 455), (560, 606)),
    "carphone.mp4": ((2, 118),),
    "vtest.avi": ((10, 200), (300, 500), (560, 780)),
    "cockatoo.mp4": ((5, 60), (165, 275)),
    "city.mpg": ((3, 110), (124, 186)),
    "megamind.avi": ((12, 92), (106, 150), (164, 190), (204, 262)),
    "birds.mp4": ((1, 31),),
    "tree.avi": ((2, 56),),
}
"""Parts of clips without a cut, by their first frames and those after their last."""
WIDTH, HEIGHT, FPS = 160, 90, 25
SMALL = (27, 48)


@dataclass(frozen=True)
class Transition:
    """A change of shots: the first frame that is not the old shot alone, and the first of the new shot alone."""

    first: int
    stop: int

    @property
    def is_hard(self) -> bool:
        return self.first == self.stop

    def found_by(self, found: tuple[int, int]) -> bool:
        """Whether a transition was found here: ``found`` is the last frame of a shot and the first of the next."""
        last, begin = found
        if self.is_hard:
            return abs(begin - self.first) <= TOLERANCE or last + 1 <= self.first <= begin
        return last <= self.stop + TOLERANCE and begin >= self.first - TOLERANCE


@dataclass
class Count:
    """Transitions that there are, those found, and those found where there is none."""

    there: int = 0
    found: int = 0
    wrong: int = 0

    def add(self, other: Count) -> None:
        self.there, self.found, self.wrong = (
            self.there + other.there,
            self.found + other.found,
            self.wrong + other.wrong,
        )

    def words(self) -> str:
        recall = self.found / self.there if self.there else 1.0
        precision = self.found / (self.found + self.wrong) if self.found else 0.0
        f1 = 2 * recall * precision / (recall + precision) if recall + precision else 0.0
        return f"F1 {f1:.3f}, recall {recall:.3f} ({self.found} of {self.there}), precision {precision:.3f}"


def transitions(shots: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the last frame of each shot but the last, and the first frame of the next."""
    return [(shots[n][1] - 1, shots[n + 1][0]) for n in range(len(shots) - 1)]


def compare(truth: list[Transition], found: list[tuple[int, int]]) -> tuple[Count, Count, int]:
    """Return the counts of hard cuts and of dissolves, and how many transitions were found where there is none."""
    left = list(found)
    hard, soft = Count(), Count()
    for one in truth:
        count = hard if one.is_hard else soft
        count.there += 1
        if match := next((place for place in left if one.found_by(place)), None):
            left.remove(match)
            count.found += 1
    return hard, soft, len(left)


def real_cuts(found: dict[str, Path], model: TransNetV2, threshold: float) -> bool:
    """Print the cuts of the clips whose cuts are known. Return whether they are all there."""
    good = True
    for name, known in REAL.items():
        began = time.process_time()
        small = [one.pixels for one in frames(str(found[name]), size=SMALL)]
        decoded = time.process_time()
        probabilities = model.of_frames(small)
        took = time.process_time() - decoded
        begins = [begin for _, begin in transitions(cuts(probabilities, threshold))]
        missed = [
            at
            for at in known[0]
            if not any(abs(begin - here) <= TOLERANCE for begin in begins for here in _alternatives(known, at))
        ]
        more = [b for b in begins if not any(abs(b - at) <= TOLERANCE for one in known for at in one)]
        print(f"{name}: {len(small)} frames, shots begin at {begins}; missed {missed}, others {more}")
        rates = [len(small) / seconds for seconds in (decoded - began, took)]
        print(f"  decoding {rates[0]:,.0f}, model {rates[1]:,.1f} frames per second of CPU time")
        good = good and not missed
    return good


def _alternatives(known: tuple[tuple[int, ...], ...], at: int) -> list[int]:
    place = known[0].index(at)
    return [one[place] for one in known]


class Pool:
    """The frames of all single shots, at the size of the joined videos."""

    def __init__(self, found: dict[str, Path]) -> None:
        self.shots: list[tuple[str, list[Any]]] = []
        for name, parts in SHOTS.items():
            if name not in found:
                continue
            last = max(stop for _, stop in parts)
            pictures = []
            for one in frames(str(found[name]), size=(HEIGHT, WIDTH), resize="area"):
                if one.index >= last:
                    break
                pictures.append(one.pixels)
            self.shots += [(name, pictures[begin:stop]) for begin, stop in parts if len(pictures) >= stop]

    def video(self, draw: random.Random) -> tuple[list[Any], list[Transition]]:
        """Return the frames of a video that is joined of shots of different clips, and its transitions."""
        made: list[Any] = []
        truth: list[Transition] = []
        before = ""
        for number in range(draw.randint(4, 6)):
            name, pictures = draw.choice([one for one in self.shots if one[0] != before])
            before = name
            length = min(len(pictures), draw.randint(25, 60))
            start = draw.randint(0, len(pictures) - length)
            part = pictures[start : start + length]
            if not number:
                made += part
            elif draw.random() < 0.5:
                truth.append(Transition(len(made), len(made)))
                made += part
            else:
                over = min(draw.randint(6, 20), length // 2, len(made) // 2)
                truth.append(Transition(len(made) - over, len(made)))
                for n in range(over):
                    share = (n + 1) / (over + 1)
                    mixed = made[-over + n] * (1 - share) + part[n] * share
                    made[-over + n] = mixed.round().astype(np.uint8)
                made += part[over:]
        return made, truth


def encoded(path: Path, pictures: list[Any]) -> None:
    """Write frames as H.264."""
    import av

    with av.open(str(path), "w") as out:
        stream: Any = out.add_stream("libx264", rate=FPS, options={"preset": "veryfast", "crf": "23"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for pixels in pictures:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        out.mux(stream.encode())


def joined(work: Path, pool: Pool, seed: int, videos: int) -> Iterator[tuple[Path, list[Transition]]]:
    """Yield the joined videos, and their transitions."""
    folder = work / f"joined-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(videos):
        pictures, truth = pool.video(random.Random(f"{seed}/{number}"))
        path = folder / f"{number:02}.mp4"
        if not path.exists():
            encoded(path, pictures)
        yield path, truth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--videos", type=int, default=50)
    parser.add_argument("--threshold", type=float, default=0.4)
    args = parser.parse_args()
    print(f"seed {args.seed}, threshold {args.threshold}", flush=True)
    found = clips(args.work)
    model = TransNetV2.load()
    good = real_cuts(found, model, args.threshold)

    hard, soft, other, count = Count(), Count(), 0, 0
    same = True
    began = time.process_time()
    others = [TransNetV2(model.engine.model, size) for size in (1, 3)]
    for number, (path, truth) in enumerate(joined(args.work, Pool(found), args.seed, args.videos)):
        small = np.stack([one.pixels for one in frames(str(path), size=SMALL)])
        probabilities = model.of_frames(small)
        count += len(small)
        if number < 5:
            pieces = np.array_split(small, 7)
            same = same and all(np.array_equal(one.of_frames(pieces), probabilities) for one in others)
        of_hard, of_soft, wrong = compare(truth, transitions(cuts(probabilities, args.threshold)))
        hard.add(of_hard)
        soft.add(of_soft)
        other += wrong
    whole = Count(hard.there + soft.there, hard.found + soft.found, other)
    print(f"{args.videos} joined videos, {count:,} frames, {time.process_time() - began:.0f} s of CPU time")
    print(f"  all        {whole.words()}")
    print(f"  hard       recall {hard.found} of {hard.there}")
    print(f"  dissolved  recall {soft.found} of {soft.there}; {other} found where there is no transition")
    print(f"  {'the same' if same else 'NOT the same'} probabilities for 1, 3 and 8 windows at a time (5 videos)")
    if not good or not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
