"""Characters that are in a table of code points."""

from __future__ import annotations

from gristmill.kernels.compile import BYTES, INTS, TABLE_OUT, kernel
from gristmill.kernels.utf8 import NO_CHARACTER, width_at


@kernel(BYTES, INTS, INTS, BYTES, TABLE_OUT)
def count_tabled(data, starts, ends, table, out):  # type: ignore[no-untyped-def]
    """``out[0]``: characters; ``out[1]``: those for which the table, of all code points, has 1."""
    for d in range(len(starts)):
        i = starts[d]
        end = ends[d]
        chars = 0
        inside = 0
        while i < end:
            lead = data[i]
            chars += 1
            if lead < 0x80:
                inside += table[lead]
                i += 1
                continue
            width = width_at(data, i, end)
            code = NO_CHARACTER
            if width == 2:
                code = (lead & 0x1F) << 6 | data[i + 1] & 0x3F
            elif width == 3:
                code = (lead & 0x0F) << 12 | (data[i + 1] & 0x3F) << 6 | data[i + 2] & 0x3F
            elif width == 4:
                code = (lead & 0x07) << 18 | (data[i + 1] & 0x3F) << 12 | (data[i + 2] & 0x3F) << 6 | data[i + 3] & 0x3F
            if code < len(table):
                inside += table[code]
            i += width
        out[0, d] = chars
        out[1, d] = inside
