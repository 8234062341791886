"""Find pictures that are nearly equal: by the distance of their hashes, verified on their thumbnails."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel

BANDS = 5
LIST_BITS = 13
"""Each band has 2 to this power lists."""
LONG, LONG_BITS, SHORT_BITS = 3, 13, 12
"""The first bands have one bit more than the others: 63 altogether."""
GREY, COLOUR = 32, 8
SAMPLES = 16
THUMBNAIL = GREY * GREY + 2 * COLOUR * COLOUR
SIDE = 1280
"""The side of a picture in the units of windows: multiples of a cell of the grid and of a pixel of the thumbnail."""
STEP = 32
"""By how much an edge of a window is moved at first."""
FAR = 600_000
"""A window whose similarity is below this, in millionths, is not moved."""
PALE = 2
"""Planes of colour that differ from grey by less than this on average have no colour."""
OTHER_COLOUR = 8
"""Planes of colour that differ by more than this on average, of 255, may be different ..."""
OTHER_SHARE = 3
"""... and are if the difference is more than a third of both: less may come from the coarse grid."""
_NO_HASH = np.uint64(1 << 63)
_MILLION = 1_000_000


@helper
def bits_set(x):
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@helper
def sample(thumbnails, at, size, edges, samples, out, to):
    """Write ``samples`` x ``samples`` values of a window of a plane to ``out[to:]``, interpolated, in 1/4096."""
    unit = 2 * samples * SIDE // size
    for i in range(samples):
        y = 2 * samples * edges[1] + (2 * i + 1) * (edges[3] - edges[1]) - unit // 2
        y = min(max(y, 0), (size - 1) * unit - 1)
        row = at + y // unit * size
        below = y % unit
        for j in range(samples):
            x = 2 * samples * edges[0] + (2 * j + 1) * (edges[2] - edges[0]) - unit // 2
            x = min(max(x, 0), (size - 1) * unit - 1)
            place = row + x // unit
            right = x % unit
            upper = (unit - right) * np.int64(thumbnails[place]) + right * np.int64(thumbnails[place + 1])
            lower = (unit - right) * np.int64(thumbnails[place + size]) + right * np.int64(thumbnails[place + size + 1])
            out[to + i * samples + j] = ((unit - below) * upper + below * lower) * 4096 // (unit * unit)


@helper
def correlation(values, count):
    """Return Pearson's correlation of ``count`` values with the ``count`` that follow, in millionths; 0 if constant."""
    a_sum = b_sum = np.int64(0)
    for k in range(count):
        a_sum += values[k]
        b_sum += values[count + k]
    aa = bb = ab = 0.0
    for k in range(count):
        a = values[k] * count - a_sum
        b = values[count + k] * count - b_sum
        aa += np.float64(a) * np.float64(a)
        bb += np.float64(b) * np.float64(b)
        ab += np.float64(a) * np.float64(b)
    least = (4096.0 * count) ** 2 * count  # a standard deviation of one grey value
    if aa < least or bb < least:
        return np.int64(0)
    return np.int64(np.floor(ab / np.sqrt(aa * bb) * _MILLION + 0.5))


@helper
def colours_differ(thumbnails, part, whole, edges, inside, scratch):
    """Whether both pictures have colours, and these differ."""
    count = COLOUR * COLOUR
    apart = np.int64(0)
    mine = np.int64(0)
    theirs = np.int64(0)
    for plane in range(2):
        at = GREY * GREY + plane * count
        sample(thumbnails, part * THUMBNAIL + at, COLOUR, edges, COLOUR, scratch, 0)
        sample(thumbnails, whole * THUMBNAIL + at, COLOUR, inside, COLOUR, scratch, count)
        for k in range(count):
            a = scratch[k] - 128 * 4096
            b = scratch[count + k] - 128 * 4096
            mine += abs(a)
            theirs += abs(b)
            apart += abs(a - b)
    pale = PALE * 4096 * 2 * count
    is_far = apart > OTHER_COLOUR * 4096 * 2 * count and apart * OTHER_SHARE > mine + theirs
    return mine >= pale and theirs >= pale and is_far


@helper
def similarity(thumbnails, part, whole, window, windows, scratch, edges):
    """Return the similarity of picture ``part`` with a window of picture ``whole``, in millionths; 0 if colours differ.

    The edges of the window are moved as long as the similarity grows. ``edges`` holds two windows.
    """
    count = SAMPLES * SAMPLES
    mine, inside = edges[:4], edges[4:]
    mine[0] = mine[1] = 0
    mine[2] = mine[3] = SIDE
    inside[0], inside[1] = windows[3 * window], windows[3 * window + 1]
    inside[2], inside[3] = inside[0] + windows[3 * window + 2], inside[1] + windows[3 * window + 2]
    sample(thumbnails, part * THUMBNAIL, GREY, mine, SAMPLES, scratch, 0)
    sample(thumbnails, whole * THUMBNAIL, GREY, inside, SAMPLES, scratch, count)
    best = correlation(scratch, count)
    step = STEP if window and best >= FAR else 0
    while step:
        is_moved = False
        for edge in range(4):
            for sign in range(-1, 2, 2):
                before = inside[edge]
                inside[edge] = min(max(before + sign * step, 0), SIDE)
                found = np.int64(-_MILLION)
                if inside[2] > inside[0] and inside[3] > inside[1]:
                    sample(thumbnails, whole * THUMBNAIL, GREY, inside, SAMPLES, scratch, count)
                    found = correlation(scratch, count)
                if found > best:
                    best = found
                    is_moved = True
                else:
                    inside[edge] = before
        if not is_moved:
            step //= 2
    if best > 0 and colours_differ(thumbnails, part, whole, mine, inside, scratch):
        return np.int64(0)
    return best


@helper
def band_of(value, band):
    first = LONG_BITS * min(band, LONG) + SHORT_BITS * max(band - LONG, 0)
    low = (1 << (LONG_BITS if band < LONG else SHORT_BITS)) - 1
    return np.int64(value >> np.uint64(first)) & low


@helper
def list_of(value, band, part):
    """Return the number of the list in which a hash is: of a band, in one of the two parts of the index."""
    return ((part * BANDS + band) << LIST_BITS) + band_of(value, band)


@helper
def make_index(hashes, count, width, index):
    """Sort the hashes of the first pictures into lists, by each band: first those of all windows, then whole pictures.

    A list has its hashes next to each other, those of earlier pictures first.
    """
    starts, values, entries = index
    parts = 2 if width > 1 else 1
    for is_counting in range(1, -1, -1):
        for part in range(parts):
            for picture in range(count):
                for window in range(1 if part else width):
                    value = hashes[picture * width + window]
                    if value == _NO_HASH:
                        continue
                    for band in range(BANDS):
                        found = list_of(value, band, part)
                        if is_counting == 0:
                            place = starts[found + 1]
                            values[place] = value
                            entries[place] = picture * (1 if part else width) + window
                        starts[found + 1] += 1
        if is_counting:
            total = np.int32(0)
            for k in range(1, len(starts)):
                total, starts[k] = total + starts[k], total


@helper
def bands_before_find(apart, band, radii):
    """Whether a band before this one finds a pair whose hashes differ in the bits of ``apart``."""
    found = False
    for before in range(band):
        found = found or radii[before] >= bits_set(np.uint64(band_of(apart, before)))
    return found


@helper
def look_up(pictures, width, search, index, survivors, scratch, of, best):
    """Return the first picture before ``best`` that a window of a picture is nearly equal to; ``best`` if none is.

    ``of`` is the picture and the number of its window. The whole picture is compared with the windows of others,
    another window with whole pictures.
    """
    hashes, thumbnails, windows = pictures
    changes, ranges, radii, most, least = search
    starts, values, entries = index
    edges = scratch[2 * SAMPLES * SAMPLES :]
    picture, window = of
    wanted = hashes[picture * width + window]
    if wanted == _NO_HASH:
        return best
    part = 0 if window == 0 else 1
    stride = width if window == 0 else 1
    for band in range(BANDS):
        own = list_of(wanted, band, part)
        for k in range(ranges[2 * band], ranges[2 * band + 1]):
            near = own ^ changes[k]
            for place in range(starts[near], starts[near + 1]):
                apart = wanted ^ values[place]
                if bits_set(apart) > most:
                    continue
                other = np.int64(entries[place]) // stride
                if other >= best:
                    break
                if survivors[other] >= 0 or bands_before_find(apart, band, radii):
                    continue
                there = np.int64(entries[place]) % stride
                small, whole = (picture, other) if window == 0 else (other, picture)
                if similarity(thumbnails, small, whole, max(window, there), windows, scratch, edges) >= least:
                    best = other
                    break
    return best


@kernel(
    "(hashes bytes ints) (int64 int64) (ints ints ints int64 int64) "
    "(out_int32s out_hashes out_int32s) out_ints out_ints"
)
def find_near(pictures, counts, search, index, out, scratch):
    """Write the first picture that each picture is nearly equal to, -1 for none, to ``out``.

    ``pictures`` are their hashes and thumbnails, and the windows. ``counts`` are the hashes of each picture, and the
    leading pictures that are not looked for but only found. If there are none of these, each picture that is nearly
    equal to none before it is found by those after it. ``search`` are the changes of bands; for each band the range of
    these; for each band their most bits; the largest distance and the least similarity. ``index`` is
    memory: zeros for the start of each list and the end of the last; for the hashes in the lists; for their numbers.
    """
    width, known = counts
    make_index(pictures[0], known if known else len(out), width, index)
    for picture in range(len(out)):
        out[picture] = -1
        if picture < known:
            continue
        limit = np.int64(known if known else picture)
        best = limit
        for window in range(width):
            best = look_up(pictures, width, search, index, out, scratch, (picture, window), best)
        if best < limit:
            out[picture] = best


@kernel("hashes bytes ints int64 int64 out_ints out_ints out_ints")
def compare_near(hashes, thumbnails, windows, width, most, distances, similarities, scratch):
    """Write the distance and the similarity of each pair: pictures 2 n and 2 n + 1.

    The distance is the least, the similarity the greatest of all windows within the largest distance ``most``.
    """
    edges = scratch[2 * SAMPLES * SAMPLES :]
    for pair in range(len(distances)):
        distances[pair] = 64
        similarities[pair] = 0
        for window in range(width):
            for side in range(2 if window else 1):
                part, whole = 2 * pair + side, 2 * pair + 1 - side
                wanted, there = hashes[part * width], hashes[whole * width + window]
                if wanted == _NO_HASH or there == _NO_HASH:
                    continue
                apart = bits_set(wanted ^ there)
                distances[pair] = min(distances[pair], apart)
                if apart <= most:
                    like = similarity(thumbnails, part, whole, window, windows, scratch, edges)
                    similarities[pair] = max(similarities[pair], like)
