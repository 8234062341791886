"""Hashes of 128 bits: of texts, and of the lines and paragraphs in them.

A text is hashed in blocks of 32 chunks of 16 bytes. A chunk's two numbers are each changed by a key of the chunk's
place and multiplied; the product is folded to 64 bits; a block's products are added up. This is done twice, with other
keys. No product depends on another, so the CPU and a GPU compute many at once. When the sums are mixed, a block's
number tells it from other blocks, and the length tells texts apart that differ in zeros at their end.
"""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel
from gristmill.kernels.constants import BLOCK_CHUNKS, CHUNK_BYTES
from gristmill.kernels.line_kernels import first_visible, visible_end
from gristmill.kernels.mixing import FOLD, LENGTH, STEP, folded_product, mixed
from gristmill.kernels.utf8 import find_newline, tail_at
from gristmill.kernels.vector import eight_at

_BLOCK = BLOCK_CHUNKS * CHUNK_BYTES
_KEYS = 4
"""Keys of each chunk: two for each of the two sums."""


@helper
def hash_bytes(data, start, end, keys):
    """Return the two halves of the hash of ``data[start:end]``."""
    total = np.uint64(0)
    other_total = np.uint64(0)
    number = np.uint64(0)
    i = start
    while i < end:
        number += np.uint64(1)
        sum_ = np.uint64(0)
        other = np.uint64(0)
        k = np.uint64(0)
        stop = min(i + _BLOCK, end)
        while i + CHUNK_BYTES <= stop:
            left = eight_at(data, i)
            right = eight_at(data, i + 8)
            sum_ += folded_product(left ^ keys[k], right ^ keys[k + np.uint64(1)])
            other += folded_product(left ^ keys[k + np.uint64(2)], right ^ keys[k + np.uint64(3)])
            k += np.uint64(_KEYS)
            i += CHUNK_BYTES
        if i < stop:
            left = tail_at(data, i, min(stop - i, 8))
            right = tail_at(data, i + 8, stop - i - 8) if stop - i > 8 else np.uint64(0)
            sum_ += folded_product(left ^ keys[k], right ^ keys[k + np.uint64(1)])
            other += folded_product(left ^ keys[k + np.uint64(2)], right ^ keys[k + np.uint64(3)])
            i = stop
        total += mixed(sum_ + number * STEP)
        other_total += mixed(other ^ (number * FOLD))
    length = np.uint64(end - start) * LENGTH
    first = mixed(total ^ length ^ keys[_KEYS * BLOCK_CHUNKS])
    return first, mixed(other_total + (first ^ keys[_KEYS * BLOCK_CHUNKS + 1]))


@kernel("texts hashes out_hashes_rows")
def hash_texts(texts, keys, out):
    """Write the two halves of the hash of each text. ``keys``: four for each chunk of a block, and two."""
    data, starts, ends = texts
    for d in range(len(starts)):
        out[d, 0], out[d, 1] = hash_bytes(data, starts[d], ends[d], keys)


@kernel("texts")
def count_lines(texts):
    """Return the number of lines in all texts: `hash_pieces` finds no more pieces."""
    data, starts, ends = texts
    count = 0
    for d in range(len(starts)):
        i = starts[d]
        while i < ends[d]:
            i = find_newline(data, i, ends[d]) + 1
            count += 1
    return count


@kernel("texts tables hashes int64 out_hashes_rows out_ints_rows")
def hash_pieces(texts, tables, keys, joined, out, places):
    """Find the pieces that are not blank. Return their number, which `count_lines` limits.

    Pieces are lines, or with ``joined`` runs of lines between blank ones. ``out`` are hashes of pieces without the
    white space around them. The rows of ``places`` are: text, begin, end, size of what is hashed.
    """
    data, starts, ends = texts
    document, begins, stops, sizes = places[0], places[1], places[2], places[3]
    count = 0
    for d in range(len(starts)):
        i = starts[d]
        end = ends[d]
        open_ = False
        while i < end:
            begin = i
            i = find_newline(data, i, end)
            blank = first_visible(data, begin, i, tables) == i
            if not blank and not open_:
                begins[count] = begin
                document[count] = d
                open_ = True
            if not blank:
                stops[count] = i
            i += 1
            if open_ and (blank or i >= end or not joined):
                from_ = first_visible(data, begins[count], stops[count], tables)
                to = visible_end(data, from_, stops[count], tables)
                out[count, 0], out[count, 1] = hash_bytes(data, from_, to, keys)
                sizes[count] = to - from_
                open_ = False
                count += 1
    return count
