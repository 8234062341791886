"""Hashes of 128 bits: of texts, and of the lines and paragraphs in them.

A text is cut into blocks of 32 chunks of 16 bytes. A chunk's two numbers are multiplied, each changed by a key of the
chunk's place first, the product is folded to 64 bits, and a block's products are added up: twice, with other keys. So
nothing waits for anything, here or on a GPU. Blocks are told apart by their numbers when their sums are mixed, and
texts that differ in zeros at their end by their lengths.
"""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import BYTES, CLASSES, HASHES, INTS, INTS_OUT, STAGE_1, helper, kernel
from gristmill.kernels.constants import BLOCK_CHUNKS, CHUNK_BYTES
from gristmill.kernels.line_kernels import first_visible, visible_end
from gristmill.kernels.mixing import FOLD, LENGTH, STEP, folded_product, mixed
from gristmill.kernels.utf8 import find_newline, tail_at
from gristmill.kernels.vector import eight_at

_BLOCK = BLOCK_CHUNKS * CHUNK_BYTES
_KEYS = 4
"""For each chunk: two for each of the two sums."""


@helper
def hash_bytes(data, start, end, keys):  # type: ignore[no-untyped-def]
    """The two halves of the hash of ``data[start:end]``."""
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


@kernel(BYTES, INTS, INTS, HASHES, "Array(uint64, 2, 'C')")
def hash_texts(data, starts, ends, keys, out):  # type: ignore[no-untyped-def]
    """``out[d]``: the hash of text ``d``, in two halves. ``keys``: four for each chunk of a block, and two."""
    for d in range(len(starts)):
        out[d, 0], out[d, 1] = hash_bytes(data, starts[d], ends[d], keys)


@kernel(BYTES, INTS, INTS)
def count_lines(data, starts, ends):  # type: ignore[no-untyped-def]
    """How many lines there are in all texts: no fewer than `hash_pieces` finds pieces."""
    count = 0
    for d in range(len(starts)):
        i = starts[d]
        while i < ends[d]:
            i = find_newline(data, i, ends[d]) + 1
            count += 1
    return count


@kernel(
    BYTES,
    INTS,
    INTS,
    STAGE_1,
    CLASSES,
    HASHES,
    "int64",
    "Array(uint64, 2, 'C')",
    INTS_OUT,
    INTS_OUT,
    INTS_OUT,
    INTS_OUT,
)
def hash_pieces(data, starts, ends, blocks, classes, keys, joined, out, document, begins, stops, sizes):  # type: ignore[no-untyped-def]
    """The pieces that are not blank: hash, text, begin, end, and size of what is hashed; returns how many.

    What is hashed is the piece without white space around it.

    They are lines, or with ``joined`` runs of lines between blank ones. There must be room for all lines.
    """
    count = 0
    for d in range(len(starts)):
        i = starts[d]
        end = ends[d]
        open_ = False
        while i < end:
            begin = i
            i = find_newline(data, i, end)
            blank = first_visible(data, begin, i, blocks, classes) == i
            if not blank and not open_:
                begins[count] = begin
                document[count] = d
                open_ = True
            if not blank:
                stops[count] = i
            i += 1
            if open_ and (blank or i >= end or not joined):
                from_ = first_visible(data, begins[count], stops[count], blocks, classes)
                to = visible_end(data, from_, stops[count], blocks, classes)
                out[count, 0], out[count, 1] = hash_bytes(data, from_, to, keys)
                sizes[count] = to - from_
                open_ = False
                count += 1
    return count
