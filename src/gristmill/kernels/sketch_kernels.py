"""Shingles of texts, and sketches of the sets of them whose places agree as often as the sets are similar.

Shingles are windows of code points, or of words by their hashes: a polynomial over them, rolled on and mixed well.
All is done in chunks that stay in the cache, whatever the length of a text.
"""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import BYTES, HASHES, HASHES_OUT, INTS, INTS_OUT, helper, kernel
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
def rest_of(data, i, end):  # type: ignore[no-untyped-def]
    """The bits that a byte adds to a character; none behind the text's end."""
    return np.uint64(data[i]) & np.uint64(0x3F) if i < end else np.uint64(0)


@helper
def code_at(data, i, end):  # type: ignore[no-untyped-def]
    """The code point whose first byte is at ``i``, as that byte says: nobody asks whether the others do continue it."""
    lead = np.uint64(data[i])
    if lead < 0x80:
        return lead
    six = np.uint64(6)
    code = rest_of(data, i + 1, end)
    if lead < 0xE0:
        return ((lead & np.uint64(0x1F)) << six) | code
    code = (code << six) | rest_of(data, i + 2, end)
    if lead < 0xF0:
        return ((lead & np.uint64(0x0F)) << np.uint64(12)) | code
    return ((lead & np.uint64(0x07)) << np.uint64(18)) | (code << six) | rest_of(data, i + 3, end)


@helper
def decode(data, i, end, codes, have, room):  # type: ignore[no-untyped-def]
    """Append code points to ``codes`` until there are ``room`` or the text ends; where it stopped, and how many."""
    while i < end and have < room:
        while i + WIDTH <= end and have + WIDTH <= room and not beyond_ascii_mask(data, i):
            for k in range(WIDTH):
                codes[have + k] = np.uint64(data[i + k])
            i += WIDTH
            have += WIDTH
        stop = min(i + WIDTH, end)
        while i < stop and have < room:
            if data[i] & 0xC0 != 0x80:  # a byte that continues a character stands for nothing of its own
                codes[have] = code_at(data, i, end)
                have += 1
            i += 1
    while i < end and data[i] & 0xC0 == 0x80:
        i += 1
    return i, have


@helper
def refill(data, words, by_word, i, end, codes, have, room):  # type: ignore[no-untyped-def]
    """Append what shingles are made of to ``codes``, which has ``have``, up to ``room``."""
    if by_word:
        while i < end and have < room:
            codes[have] = words[i]
            i += 1
            have += 1
        return i, have
    return decode(data, i, end, codes, have, room)


@helper
def roll(codes, have, width, power, seed, out):  # type: ignore[no-untyped-def]
    """The shingles of ``codes``; returns how many there are. Reads one code more than there are."""
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
def next_shingles(data, words, by_word, i, end, width, power, seed, codes, kept, out):  # type: ignore[no-untyped-def]
    """Shingles of the next part of a text: where it ends, how many there are, and how many codes are kept.

    The first ``kept`` codes are the last of the part before, -1 if there is none. A text that is shorter than a
    shingle is one, of its own length.
    """
    i, have = refill(data, words, by_word, i, end, codes, max(kept, 0), len(codes) - 1)
    if have < width:
        if kept >= 0:
            return i, 0, kept
        h = np.uint64(0)
        for k in range(have):
            h = h * STEP + codes[k]
        out[0] = mixed((h + np.uint64(have + 1) * LENGTH) ^ seed)
        return i, 1, 0
    count = roll(codes, have, width, power, seed, out)
    for k in range(width - 1):
        codes[k] = codes[count + k]
    return i, count, width - 1


@helper
def put_first(shingles, count, places, minima):  # type: ignore[no-untyped-def]
    """The first round: a shingle's upper bits say its place, its lower ones what it is worth there."""
    for k in range(count):
        value = shingles[k]
        place = ((value >> _HALF) * places) >> _HALF
        minima[place] = min(minima[place], value & _HASH)


@helper
def put_again(shingles, count, places, round_, salt, minima):  # type: ignore[no-untyped-def]
    """A later round. As many as there are places let each shingle say where it goes; each of those behind fills one."""
    head = round_ << _ROUND
    if round_ < places:
        for k in range(count):
            value = remixed(shingles[k], salt)
            place = ((value >> _HALF) * places) >> _HALF
            minima[place] = min(minima[place], head | (value & _HASH))
        return
    place = round_ - places
    if minima[place] >> _ROUND >= round_:  # empty, or filled by a part before of the same text
        least = minima[place]
        for k in range(count):
            least = min(least, head | (remixed(shingles[k], salt) & _HASH))
        minima[place] = least


@helper
def count_empty(minima):  # type: ignore[no-untyped-def]
    empty = 0
    for k in range(len(minima)):
        empty += minima[k] == _EMPTY
    return empty


@helper
def put_rounds(shingles, count, places, round_, stop, salts, minima):  # type: ignore[no-untyped-def]
    """Rounds from ``round_`` on until no place is empty, or ``stop``; returns the next one, and how many are empty."""
    empty = count_empty(minima)
    while empty and round_ < stop:
        # no fewer rounds can fill them all, and one too many changes nothing
        least = round_ + np.uint64(max((empty + count - 1) // count, 64 // count))
        while round_ < min(least, stop):
            put_again(shingles, count, places, round_, salts[round_], minima)
            round_ += _ONE
        empty = count_empty(minima)
    return round_, empty


@helper
def add_distinct(shingles, count, distinct, found, table):  # type: ignore[no-untyped-def]
    """Append shingles that are not in ``distinct`` yet; -1 if there is no room for all. ``table`` holds 0 at first.

    Shingles are hashes with a seed, so that their lowest bits say where they stand in the table.
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
def fill_places(  # type: ignore[no-untyped-def]
    data, words, by_word, start, end, width, power, seed, salts, codes, shingles, distinct, table, minima
):
    """The minima of one text by fast similarity sketching (Dahlgaard, Knudsen, Thorup 2017)."""
    places = np.uint64(len(minima))
    minima[:] = _EMPTY
    i, count, kept = next_shingles(data, words, by_word, start, end, width, power, seed, codes, np.int64(-1), shingles)
    put_first(shingles, count, places, minima)
    whole = i >= end
    while i < end:
        i, count, kept = next_shingles(data, words, by_word, i, end, width, power, seed, codes, kept, shingles)
        put_first(shingles, count, places, minima)
    most = np.uint64(2) * places
    # if a text's shingles were all different, this many rounds would do
    enough = min(np.uint64(16 * len(minima) // count + 2), most) if whole else _ONE
    round_, empty = put_rounds(shingles, count, places, _ONE, enough, salts, minima)
    if not empty:
        return
    # Few shingles, again and again: without this a long text of them would be read in hundreds of rounds.
    table[:] = 0
    found = 0
    if whole:
        found = add_distinct(shingles, count, distinct, found, table)
    else:
        i = start
        kept = -1
        while i < end and found >= 0:
            i, count, kept = next_shingles(data, words, by_word, i, end, width, power, seed, codes, kept, shingles)
            found = add_distinct(shingles, count, distinct, found, table)
    if found >= 0:
        put_rounds(distinct, found, places, round_, most, salts, minima)
        return
    # So many that no place should have stayed empty: never seen, and right all the same.
    while count_empty(minima) and round_ < most:
        i = start
        kept = -1
        while i < end:
            i, count, kept = next_shingles(data, words, by_word, i, end, width, power, seed, codes, kept, shingles)
            put_again(shingles, count, places, round_, salts[round_], minima)
        round_ += _ONE


@helper
def give_out(minima, d, rows, bands, small, signatures):  # type: ignore[no-untyped-def]
    """One text's minima as hashes of bands, as single bytes, and as they are, where there is room for each."""
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


_INPUT = (BYTES, HASHES, INTS, INTS, "int64", "int64", "uint64", "uint64", HASHES)
_ROOM = (HASHES_OUT, HASHES_OUT)
_OUTPUT = ("int64", "Array(uint64, 2, 'C')", "Array(uint8, 2, 'C')", "Array(uint64, 2, 'C')")


@kernel(*_INPUT, *_ROOM, HASHES_OUT, "Array(int32, 1, 'C')", HASHES_OUT, *_OUTPUT)
def sketch_fast(  # type: ignore[no-untyped-def]
    data, words, starts, ends, by_word, width, power, seed, salts, codes, shingles, distinct, table, minima,
    rows, bands, small, signatures
):  # fmt: skip
    """Sketch texts whose words, or bytes, are from ``starts`` to ``ends``; ``power`` is the base to ``width``.

    There are twice as many ``salts`` as ``minima``, and one ``code`` more than ``shingles``, which are more than a few
    times ``width``. ``distinct`` are no fewer than ``shingles``, and ``table``, a power of two, is twice as long.
    """
    for d in range(len(starts)):
        begin, end = starts[d], ends[d]
        fill_places(
            data, words, by_word, begin, end, width, power, seed, salts, codes, shingles, distinct, table, minima
        )  # fmt: skip
        give_out(minima, d, rows, bands, small, signatures)


@kernel(*_INPUT, *_ROOM, "Array(uint32, 1, 'C')", HASHES_OUT, *_OUTPUT)
def sketch_classic(  # type: ignore[no-untyped-def]
    data, words, starts, ends, by_word, width, power, seed, salts, codes, shingles, narrow, minima,
    rows, bands, small, signatures
):  # fmt: skip
    """As `sketch_fast`, with a hash of 32 bits of its own for each minimum. ``narrow`` is as long as ``shingles``."""
    for d in range(len(starts)):
        i = starts[d]
        kept = np.int64(-1)
        minima[:] = _EMPTY
        while True:
            i, count, kept = next_shingles(
                data, words, by_word, i, ends[d], width, power, seed, codes, kept, shingles
            )  # fmt: skip
            for k in range(count):
                narrow[k] = np.uint32(shingles[k] >> _HALF)
            for m in range(len(minima)):
                flip = np.uint32(salts[m] >> _HALF)
                factor = np.uint32(np.uint32(salts[m]) | np.uint32(1))
                least = np.uint32(0xFFFFFFFF)
                for k in range(count):
                    least = min(least, product_32(np.uint32(narrow[k] ^ flip), factor))
                minima[m] = min(minima[m], np.uint64(least))
            if i >= ends[d]:
                break
        give_out(minima, d, rows, bands, small, signatures)


@kernel(*_INPUT[:-1], *_ROOM, HASHES_OUT, INTS_OUT)
def list_shingles(  # type: ignore[no-untyped-def]
    data, words, starts, ends, by_word, width, power, seed, codes, shingles, out, edges
):
    """All shingles of text ``d``, from ``out[edges[d]]`` on. There is room for as many as bytes, or words, or one."""
    total = 0
    edges[0] = 0
    for d in range(len(starts)):
        i = starts[d]
        kept = np.int64(-1)
        while True:
            i, count, kept = next_shingles(
                data, words, by_word, i, ends[d], width, power, seed, codes, kept, shingles
            )  # fmt: skip
            for k in range(count):
                out[total + k] = shingles[k]
            total += count
            if i >= ends[d]:
                break
        edges[d + 1] = total
