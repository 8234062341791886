"""A clip as one picture, by which it is compared with other clips: what it shows, and how that changes.

The picture has four cells. The first is the mean of all frames, in colour. The others are how the brightness changes:
the first half against the second, the middle against both ends, and the second and last quarters against the others.
They are made as bright as the first cell, so that two parts of a film with the same background differ, but not by more
than a factor, so that the noise of a still picture stays small.
"""

from __future__ import annotations

from gristmill.lazy import Array, np
from gristmill.videos.bars import bars

FRAMES = 16
"""Frames of a clip that are looked at: four in each quarter, whose mean stands for it."""
CELL = 80
"""Rows and columns of a cell. Hashes are computed from a grid of twice 40."""
CHANGE = 40.0
"""The standard deviation of the changes in a picture, of 255."""
MOST_GAIN = 8.0
"""The factor by which changes are raised at most."""
SIGNS = ((1, 1, -1, -1), (1, -1, -1, 1), (1, -1, 1, -1))
"""How the quarters count in each change."""


def picture_of(frames: Array) -> Array:
    """Return the picture of a clip: uint8, (160, 160, 3). ``frames`` are (16, height, width, 3); bars are cut off."""
    inside = bars(frames).without(frames)
    small = np.stack([_resized(frame) for frame in inside])
    quarters = small.reshape(4, -1, CELL, CELL, 3).mean(axis=1)
    mean = quarters.mean(axis=0)
    grey = quarters @ np.array([0.299, 0.587, 0.114])
    changes = np.stack([np.tensordot(np.array(signs), grey, axes=1) / 4 for signs in SIGNS])
    deviation = float(np.sqrt(np.mean(np.square(changes))))
    gain = min(MOST_GAIN, CHANGE / deviation) if deviation > 0 else 0.0
    cells = [mean, *(np.repeat((128 + gain * change)[..., None], 3, axis=2) for change in changes)]
    whole = np.concatenate([np.concatenate(cells[:2], axis=1), np.concatenate(cells[2:], axis=1)])
    picture: Array = np.clip(np.rint(whole), 0, 255).astype(np.uint8)
    return picture


def _resized(frame: Array) -> Array:
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(frame)).resize((CELL, CELL), Image.Resampling.BOX)
    resized: Array = np.asarray(image).astype(np.float64)
    return resized
