"""Lines of text, as all filters and modifiers split them.

A line ends with ``\\n`` or ``\\r\\n``, which are not part of it. No other character ends a line: not ``\\r`` alone, not
U+2028. A text of *n* line ends has *n* + 1 lines, the last of which may be empty. The kernels (`line_kernels`) do the
same with bytes.
"""

from __future__ import annotations

import re

LINE_END = re.compile("\r?\n")


def lines_in(text: str) -> list[str]:
    """Return the lines of a text, without their ends.

    >>> lines_in("one\\r\\ntwo\\n")
    ['one', 'two', '']
    """
    if "\r\n" in text:
        text = text.replace("\r\n", "\n")
    return text.split("\n")
