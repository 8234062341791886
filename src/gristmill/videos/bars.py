"""Dark bars at the edges of a video: letterbox and pillarbox."""

from __future__ import annotations

from dataclasses import dataclass

from gristmill.lazy import Array, np

DARK = 32
"""The brightness, of 255, up to which a pixel is black: encoding changes it, most of all beside the picture."""
MOST_BRIGHT = 0.05
"""The share of brighter pixels in a black row: a logo may stand in it."""
ALIKE = 0.5
"""The smaller of two opposite bars has at least this part of the other one's size. Dark scenes are not so even."""
_GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Bars:
    """The sizes of dark bars in pixels."""

    top: int
    bottom: int
    left: int
    right: int
    height: int
    width: int

    @property
    def share(self) -> float:
        """The share of the area that the bars cover."""
        inside = (self.height - self.top - self.bottom) * (self.width - self.left - self.right)
        return 1 - inside / (self.height * self.width)

    def without(self, frames: Array) -> Array:
        """Return frames, (..., height, width, 3), without the bars."""
        return frames[..., self.top : self.height - self.bottom, self.left : self.width - self.right, :]


def bars(frames: Array) -> Bars:
    """Find the bars that all frames have: (frames, height, width, 3). Frames that are all black have none."""
    brightest = np.zeros(frames.shape[1:3], dtype=bool)
    for frame in frames:
        brightest |= frame @ _GREY > DARK
    height, width = brightest.shape
    if not brightest.any():
        return Bars(0, 0, 0, 0, height, width)
    rows = brightest.mean(axis=1) > MOST_BRIGHT
    top, bottom = _pair(rows)
    inside = brightest[top : height - bottom]
    left, right = _pair(inside.mean(axis=0) > MOST_BRIGHT)
    return Bars(top, bottom, left, right, height, width)


def _pair(is_picture: Array) -> tuple[int, int]:
    """Return the sizes of the bars before and after the picture; none if they are too unequal."""
    there = np.flatnonzero(is_picture)
    if not len(there):
        return 0, 0
    first, second = int(there[0]), len(is_picture) - 1 - int(there[-1])
    return (first, second) if min(first, second) >= ALIKE * max(first, second) else (0, 0)
