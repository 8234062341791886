"""Lines and paragraphs, and how many of them are repeated."""

from __future__ import annotations

import numpy as np

from gristmill.kernels.compile import helper, kernel
from gristmill.kernels.unicode import Class
from gristmill.kernels.utf8 import (
    HIGHS,
    M1,
    M2,
    SEED,
    class_at,
    count_chars,
    find_newline,
    finish,
    mix,
    same_bytes,
    start_before,
    tail_at,
    width_at,
)
from gristmill.kernels.vector import WIDTH, bits_in, eight_at, line_feed_mask

_SPACE = np.uint16(Class.SPACE)
_BULLET = np.uint16(Class.BULLET)
_END_MARK = np.uint16(Class.END_MARK)
_ELLIPSIS = np.uint16(Class.ELLIPSIS)


@helper
def first_visible(data, start, end, tables):
    """Return where the first character that is not white space begins; ``end`` if there is none."""
    i = start
    while i < end:
        width = width_at(data, i, end)
        if not class_at(data, i, width, tables) & _SPACE:
            return i
        i += width
    return end


@helper
def visible_end(data, start, end, tables):
    """Return where the last character that is not white space ends; ``start`` if there is none."""
    i = end
    while i > start:
        j = start_before(data, i, start)
        if not class_at(data, j, i - j, tables) & _SPACE:
            return i
        i = j
    return start


@helper
def ellipsis_before(data, start, end, tables):
    """Return where an ellipsis begins that ends at ``end``; -1 if there is none."""
    if end - start >= 3 and data[end - 1] == 0x2E and data[end - 2] == 0x2E and data[end - 3] == 0x2E:
        return end - 3
    if end > start:
        j = start_before(data, end, start)
        if class_at(data, j, end - j, tables) & _ELLIPSIS:
            return j
    return -1


@helper
def ends_with_ellipsis(data, start, end, tables):
    """Return whether a line ends with an ellipsis, bare or alone in round or square brackets."""
    if ellipsis_before(data, start, end, tables) >= 0:
        return True
    close = data[end - 1]
    if close != 0x29 and close != 0x5D:
        return False
    begin = ellipsis_before(data, start, end - 1, tables)
    return begin > start and data[begin - 1] == (0x28 if close == 0x29 else 0x5B)


@helper
def distinct(data, begins, ends, hashes, chars, count, table, salt):
    """Return how many parts differ from all parts before them, and their characters.

    ``table`` is at least twice as long as there are parts, and eight.
    """
    size = 8
    while size < 2 * count:
        size *= 2
    for k in range(size):
        table[k] = -1
    found = 0
    found_chars = 0
    for p in range(count):
        place = np.int64(((hashes[p] ^ salt) * M1) >> np.uint64(32)) & (size - 1)
        length = ends[p] - begins[p]
        new = True
        while table[place] >= 0:
            q = table[place]
            if (
                hashes[q] == hashes[p]
                and ends[q] - begins[q] == length
                and same_bytes(data, begins[p], begins[q], length)
            ):
                new = False
                break
            place = (place + 1) & (size - 1)
        if new:
            table[place] = p
            found += 1
            found_chars += chars[p]
    return found, found_chars


@helper
def hash_line(data, begin, end):
    """Return a hash of the bytes, and the number of their characters."""
    h = SEED
    other = M2
    i = begin
    seen = np.uint64(0)
    while i + 16 <= end:  # two hashes at a time do not wait for each other
        value = eight_at(data, i)
        more = eight_at(data, i + 8)
        seen |= value | more
        h = mix(h, value)
        other = mix(other, more)
        i += 16
    if i + 8 <= end:
        value = eight_at(data, i)
        seen |= value
        h = mix(h, value)
        i += 8
    value = tail_at(data, i, end - i)
    seen |= value
    h = finish(mix(mix(h, value), other), end - begin)
    return h, count_chars(data, begin, end) if seen & HIGHS else end - begin


@kernel("texts")
def most_lines(texts):
    """Return the number of lines of the document that has most."""
    data, starts, ends = texts
    most = 0
    for d in range(len(starts)):
        newlines = 0
        i = starts[d]
        while i + WIDTH <= ends[d]:
            newlines += bits_in(line_feed_mask(data, i))
            i += WIDTH
        while i < ends[d]:
            newlines += data[i] == 0x0A
            i += 1
        most = max(most, newlines + 1)
    return most


@kernel("texts tables uint64 (out_ints_rows out_hashes_rows out_ints) out_ints_rows")
def split_lines(texts, tables, salt, work, out):
    """Write counts of lines to ``out[0:7]`` and of paragraphs to ``out[7:11]``.

    Of lines: count, characters, bullets, ellipses, end marks, distinct lines and their characters. Of paragraphs:
    count, characters, distinct paragraphs and their characters. ``work`` are an array of six rows and one of two, as
    long as the `most_lines`, and a table four times as long, and eight.
    """
    data, starts, ends = texts
    rows, hashes, table = work
    line_from = rows[0]
    line_to = rows[1]
    line_chars = rows[2]
    part_from = rows[3]
    part_to = rows[4]
    part_chars = rows[5]
    line_hash = hashes[0]
    part_hash = hashes[1]
    for d in range(len(starts)):
        i = starts[d]
        end = ends[d]
        lines = 0
        parts = 0
        chars = 0
        paragraph_chars = 0
        bullets = 0
        ellipses = 0
        marks = 0
        returns = 0
        open_ = False
        while i < end:
            begin = i
            i = find_newline(data, i, end)
            visible = first_visible(data, begin, i, tables)
            if visible == i:  # blank: it ends a paragraph and is no line
                open_ = False
                i += 1
                continue
            last = visible_end(data, visible, i, tables)
            stop = i
            if last < i < end and data[i - 1] == 0x0D:  # "\r\n" ends a line as "\n" does
                stop -= 1
                returns += 1
            bits = class_at(data, visible, width_at(data, visible, i), tables)
            bullets += (bits & _BULLET) != 0
            j = start_before(data, last, visible)
            marks += (class_at(data, j, last - j, tables) & _END_MARK) != 0
            ellipses += ends_with_ellipsis(data, visible, last, tables)
            h, n = hash_line(data, begin, stop)
            line_from[lines] = begin
            line_to[lines] = stop
            line_hash[lines] = h
            line_chars[lines] = n
            lines += 1
            chars += n
            if open_:
                p = parts - 1
                part_chars[p] += n + 1
                paragraph_chars += n + 1
            else:
                p = parts
                parts += 1
                part_from[p] = begin
                part_hash[p] = SEED
                part_chars[p] = n
                paragraph_chars += n
                open_ = True
            part_to[p] = stop
            part_hash[p] = finish(mix(part_hash[p], h), 1)
            i += 1
        out[0, d] = lines
        out[1, d] = chars
        out[2, d] = bullets
        out[3, d] = ellipses
        out[4, d] = marks
        different, different_chars = distinct(data, line_from, line_to, line_hash, line_chars, lines, table, salt)
        out[5, d] = different
        out[6, d] = different_chars
        if 0 < returns < lines:  # both kinds of line ends: paragraphs are compared by the hashes of their lines
            for p in range(parts):
                part_from[p] = 0
                part_to[p] = 0
        out[7, d] = parts
        out[8, d] = paragraph_chars
        different, different_chars = distinct(data, part_from, part_to, part_hash, part_chars, parts, table, salt)
        out[9, d] = different
        out[10, d] = different_chars
