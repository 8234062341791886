"""Shingles of texts, and sketches of sets of shingles.

The share of equal places of two sketches estimates the similarity of the sets.

Shingles are windows of code points, or of hashes of words. Their hash is a rolling polynomial that is mixed well. The
work is done in chunks that stay in the cache, for texts of any length.

Arguments that belong together are tuples. ``source``: bytes, hashes of words, and whether shingles are of words.
``shingle``: width, base to the power of the width, seed. ``work``: space for code points and for shingles.
"""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel
from gristmill.kernels.constants import ROUND_BITS
from gristmill.kernels.mixing import FOLD, LENGTH, STEP, mixed, product_32, remixed
from gristmill.kernels.vector import WIDTH, beyond_ascii_mask

_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_HASH = np.uint64((1 << ROUND_BITS) - 1)
_ROUND = np.uint64(ROUND_BITS)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


@helper
def more_bits(data, i, end):
    """Return the bits that a byte adds to a character; 0 after the end of the text."""
    return np.uint64(data[i]) & np.uint64(0x3F) if i < end else np.uint64(0)


@helper
def lenient_code_at(data, i, end):
    """Return the code point by its first byte at ``i``, without a check that the next bytes continue it."""
    lead = np.uint64(data[i])
    if lead < 0x80:
        return lead
    six = np.uint64(6)
    code = more_bits(data, i + 1, end)
    if lead < 0xE0:
        return ((lead & np.uint64(0x1F)) << six) | code
    code = (code << six) | more_bits(data, i + 2, end)
    if lead < 0xF0:
        return ((lead & np.uint64(0x0F)) << np.uint64(12)) | code
    return ((lead & np.uint64(0x07)) << np.uint64(18)) | (code << six) | more_bits(data, i + 3, end)


@helper
def decode(data, i, end, codes, have, limit):
    """Append code points to ``codes`` until there are ``limit`` or the text ends. Return the place and their number."""
    while i < end and have < limit:
        while i + WIDTH <= end and have + WIDTH <= limit and not beyond_ascii_mask(data, i):
            for k in range(WIDTH):
                codes[have + k] = np.uint64(data[i + k])
            i += WIDTH
            have += WIDTH
        stop = min(i + WIDTH, end)
        while i < stop and have < limit:
            if data[i] & 0xC0 != 0x80:  # a byte that continues a character is no code point
                codes[have] = lenient_code_at(data, i, end)
                have += 1
            i += 1
    while i < end and data[i] & 0xC0 == 0x80:
        i += 1
    return i, have


@helper
def refill(source, i, end, codes, have, limit):
    """Append code points or words to ``codes``, which has ``have``, up to ``limit``."""
    data, words, by_word = source
    if by_word:
        while i < end and have < limit:
            codes[have] = words[i]
            i += 1
            have += 1
        return i, have
    return decode(data, i, end, codes, have, limit)


@helper
def roll(codes, have, shingle, out):
    """Write the shingles of ``codes``. Return their number. Reads one code more than there are."""
    width, power, seed = shingle
    count = have - width + 1
    quarter = count // 4
    a = np.uint64(0)
    b = np.uint64(0)
    c = np.uint64(0)
    d = np.uint64(0)
    for k in range(width):
        a = a * STEP + codes[k]
        b = b * STEP + codes[quarter + k]
        c = c * STEP + codes[2 * quarter + k]
        d = d * STEP + codes[3 * quarter + k]
    for k in range(quarter):  # four at a time do not wait for each other
        out[k] = a
        a = a * STEP + (codes[k + width] - power * codes[k])
        j = quarter + k
        out[j] = b
        b = b * STEP + (codes[j + width] - power * codes[j])
        j += quarter
        out[j] = c
        c = c * STEP + (codes[j + width] - power * codes[j])
        j += quarter
        out[j] = d
        d = d * STEP + (codes[j + width] - power * codes[j])
    for j in range(4 * quarter, count):
        out[j] = d
        d = d * STEP + (codes[j + width] - power * codes[j])
    for k in range(count):
        out[k] = mixed(out[k] ^ seed)
    return count


@helper
def next_shingles(source, i, end, shingle, work, kept):
    """Write the shingles of the next part of a text. Return its end, their number, and how many codes are kept.

    The first ``kept`` codes are the last of the part before; -1 if there is none. A text that is shorter than a
    shingle is one shingle of its own length.
    """
    codes, out = work
    width, _, seed = shingle
    i, have = refill(source, i, end, codes, max(kept, 0), len(codes) - 1)
    if have < width:
        if kept >= 0:
            return i, 0, kept
        h = np.uint64(0)
        for k in range(have):
            h = h * STEP + codes[k]
        out[0] = mixed((h + np.uint64(have + 1) * LENGTH) ^ seed)
        return i, 1, 0
    count = roll(codes, have, shingle, out)
    for k in range(width - 1):
        codes[k] = codes[count + k]
    return i, count, width - 1


@helper
def put_first(shingles, count, places, minima):
    """Do the first round: a shingle's upper bits are its place, its lower bits its value there."""
    for k in range(count):
        value = shingles[k]
        place = ((value >> _HALF) * places) >> _HALF
        minima[place] = min(minima[place], value & _HASH)


@helper
def put_again(shingles, count, places, round_, salt, minima):
    """Do a later round. In the first ``places`` rounds each shingle has a place; each later round fills one place."""
    head = round_ << _ROUND
    if round_ < places:
        for k in range(count):
            value = remixed(shingles[k], salt)
            place = ((value >> _HALF) * places) >> _HALF
            minima[place] = min(minima[place], head | (value & _HASH))
        return
    place = round_ - places
    if minima[place] >> _ROUND >= round_:  # empty, or filled by an earlier part of the same text
        least = minima[place]
        for k in range(count):
            least = min(least, head | (remixed(shingles[k], salt) & _HASH))
        minima[place] = least


@helper
def count_empty(minima):
    empty = 0
    for k in range(len(minima)):
        empty += minima[k] == _EMPTY
    return empty


@helper
def put_rounds(shingles, count, places, round_, stop, salts, minima):
    """Do rounds from ``round_`` on until no place is empty, or ``stop``. Return the next round and the empty places."""
    empty = count_empty(minima)
    while empty and round_ < stop:
        # fewer rounds cannot fill all places, and extra rounds change nothing
        least = round_ + np.uint64(max((empty + count - 1) // count, 64 // count))
        while round_ < min(least, stop):
            put_again(shingles, count, places, round_, salts[round_], minima)
            round_ += _ONE
        empty = count_empty(minima)
    return round_, empty


@helper
def add_distinct(shingles, count, distinct, found, table):
    """Append shingles that are not in ``distinct`` yet. Return their number, -1 if they do not all fit.

    ``table`` holds 0 at first. Shingles are hashes with a seed, so their lowest bits are their slots in the table.
    """
    mask = np.uint64(len(table) - 1)
    for k in range(count):
        value = shingles[k]
        slot = value & mask
        while table[slot] != 0 and distinct[table[slot] - 1] != value:
            slot = (slot + _ONE) & mask
        if table[slot] == 0:
            if found == len(distinct):
                return -1
            distinct[found] = value
            found += 1
            table[slot] = found
    return found


@helper
def fill_places(source, start, end, shingle, salts, work, few, minima):
    """Find the minima of one text by fast similarity sketching (Dahlgaard, Knudsen, Thorup 2017)."""
    distinct, table = few
    shingles = work[1]
    places = np.uint64(len(minima))
    minima[:] = _EMPTY
    i, count, kept = next_shingles(source, start, end, shingle, work, np.int64(-1))
    put_first(shingles, count, places, minima)
    whole = i >= end
    while i < end:
        i, count, kept = next_shingles(source, i, end, shingle, work, kept)
        put_first(shingles, count, places, minima)
    most = np.uint64(2) * places
    # If a text's shingles were all different, this many rounds would be enough.
    enough = min(np.uint64(16 * len(minima) // count + 2), most) if whole else _ONE
    round_, empty = put_rounds(shingles, count, places, _ONE, enough, salts, minima)
    if not empty:
        return
    # Few shingles, repeated many times. Reading a long text of them in each of hundreds of rounds would be slow.
    table[:] = 0
    found = 0
    if whole:
        found = add_distinct(shingles, count, distinct, found, table)
    else:
        i = start
        kept = -1
        while i < end and found >= 0:
            i, count, kept = next_shingles(source, i, end, shingle, work, kept)
            found = add_distinct(shingles, count, distinct, found, table)
    if found >= 0:
        put_rounds(distinct, found, places, round_, most, salts, minima)
        return
    # So many shingles that no place should be empty. Never seen, but correct.
    while count_empty(minima) and round_ < most:
        i = start
        kept = -1
        while i < end:
            i, count, kept = next_shingles(source, i, end, shingle, work, kept)
            put_again(shingles, count, places, round_, salts[round_], minima)
        round_ += _ONE


@helper
def write_sketch(minima, d, out):
    """Write one text's minima: as hashes of bands, as single bytes, and as they are. Empty arrays are skipped."""
    rows, bands, small, signatures = out
    for band in range(len(bands)):
        h = mixed(np.uint64(band + 1) * STEP)
        for k in range(band * rows, (band + 1) * rows):
            h = (h ^ minima[k]) * FOLD
            h ^= h >> np.uint64(29)
        bands[band, d] = mixed(h)
    if len(small):
        for k in range(len(minima)):
            small[d, k] = np.uint8((minima[k] * FOLD) >> np.uint64(56))
    if len(signatures):
        for k in range(len(minima)):
            signatures[d, k] = minima[k]


_INPUT = "(bytes hashes int64) ints ints (int64 uint64 uint64)"
_WORK = "(out_hashes out_hashes)"
_OUTPUT = "(int64 out_hashes_rows out_bytes_rows out_hashes_rows)"


@kernel(f"{_INPUT} hashes {_WORK} (out_hashes out_int32s out_hashes) {_OUTPUT}")
def sketch_fast(source, starts, ends, shingle, salts, work, places, out):
    """Sketch texts whose bytes or words are from ``starts`` to ``ends``.

    ``places`` are distinct shingles, a table and minima. There are twice as many ``salts`` as minima, and one code
    point more than shingles, which are more than a few times the width. Distinct shingles are no fewer than shingles;
    the length of the table is a power of two, and twice as much. ``out``: rows of a band, bands, bytes, signatures.
    """
    distinct, table, minima = places
    for d in range(len(starts)):
        fill_places(source, starts[d], ends[d], shingle, salts, work, (distinct, table), minima)
        write_sketch(minima, d, out)


@kernel(f"{_INPUT} hashes {_WORK} (out_lengths out_hashes) {_OUTPUT}")
def sketch_classic(source, starts, ends, shingle, salts, work, places, out):
    """Do as `sketch_fast`, with a separate hash of 32 bits for each minimum.

    ``places`` are an array as long as there are shingles, and minima.
    """
    narrow, minima = places
    for d in range(len(starts)):
        i = starts[d]
        kept = np.int64(-1)
        minima[:] = _EMPTY
        while True:
            i, count, kept = next_shingles(source, i, ends[d], shingle, work, kept)
            for k in range(count):
                narrow[k] = np.uint32(work[1][k] >> _HALF)
            for m in range(len(minima)):
                flip = np.uint32(salts[m] >> _HALF)
                factor = np.uint32(np.uint32(salts[m]) | np.uint32(1))
                least = np.uint32(0xFFFFFFFF)
                for k in range(count):
                    least = min(least, product_32(np.uint32(narrow[k] ^ flip), factor))
                minima[m] = min(minima[m], np.uint64(least))
            if i >= ends[d]:
                break
        write_sketch(minima, d, out)


@kernel(f"{_INPUT} {_WORK} out_hashes out_ints")
def list_shingles(source, starts, ends, shingle, work, out, edges):
    """Write all shingles of text ``d`` from ``out[edges[d]]`` on: at most as many as bytes or words, or one."""
    total = 0
    edges[0] = 0
    for d in range(len(starts)):
        i = starts[d]
        kept = np.int64(-1)
        while True:
            i, count, kept = next_shingles(source, i, ends[d], shingle, work, kept)
            for k in range(count):
                out[total + k] = work[1][k]
            total += count
            if i >= ends[d]:
                break
        edges[d + 1] = total
