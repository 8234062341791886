"""The filters that FineWeb added to those of C4 and Gopher: ratios of lines and words.

Blank lines count only with ``blank_lines``. A document without lines gets the worst score. With ``exclusive`` a score
at the limit is dropped, too.
"""

from __future__ import annotations

from collections.abc import Callable

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.document_filter import AtLeast, AtMost
from gristmill.stages.text.lines import lines_in

# Unicode's property Sentence_Terminal, as code points and ranges of them.
_POINTS = (
    "21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736 "
    "17D4-17D6 17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F "
    "203C-203D 2047-2049 2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F "
    "A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 "
    "10F86-10F89 11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 "
    "1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946 "
    "11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 16B44 "
    "16E98 1BC9F 1DA88 "
)


def _characters() -> str:
    runs = [run.split("-") for run in _POINTS.split()]
    return "".join(chr(point) for run in runs for point in range(int(run[0], 16), int(run[-1], 16) + 1))


SENTENCE_MARKS = _characters()


def lines_of(text: str, blank_lines: bool = False) -> list[str]:
    """Return the lines that are not blank, or all lines, without their ends."""
    lines = lines_in(text)
    return lines if blank_lines else [line for line in lines if line and not line.isspace()]


def _score_each(texts: Texts, score: Callable[[str], float]) -> Array:
    return np.fromiter((score(text) for text in texts.strings()), dtype=np.float64, count=len(texts))


@builtin
class LinePunctuationFilter(AtLeast):
    """Keep documents in which at least ``min_ratio`` of the lines end in a mark that ends sentences.

    ``marks`` are other marks, as one text; only there can quotation marks be among them. ``keep_if_none`` keeps
    documents in which no line ends in a mark.
    """

    rule_text = "at least {0.least:g} of the lines end in punctuation"
    thresholds = {"min_ratio": "least"}

    def __init__(
        self,
        min_ratio: float = 0.12,
        marks: str | None = None,
        keep_if_none: bool = False,
        blank_lines: bool = False,
        exclusive: bool = False,
    ) -> None:
        self.least = min_ratio
        self.marks = tuple(SENTENCE_MARKS if marks is None else marks)
        self.keep_if_none = keep_if_none
        self.blank_lines = blank_lines
        self.exclusive = exclusive

    def score_batch(self, texts: Texts) -> Array:
        marks, blank_lines = frozenset(self.marks), self.blank_lines

        def score(text: str) -> float:
            lines = lines_of(text, blank_lines)
            return sum(line[-1:] in marks for line in lines) / len(lines) if lines else -1.0

        return _score_each(texts, score)

    def keep_batch(self, scores: Array) -> Array:
        kept = super().keep_batch(scores)
        return kept | (scores == 0) if self.keep_if_none else kept


@builtin
class ShortLinesFilter(AtMost):
    """Keep documents in which at most ``max_ratio`` of the lines have at most ``length`` characters."""

    rule_text = "at most {0.most:g} of the lines have {0.length} characters or fewer"
    thresholds = {"max_ratio": "most"}

    def __init__(
        self, max_ratio: float = 0.67, length: int = 30, blank_lines: bool = False, exclusive: bool = False
    ) -> None:
        self.most = max_ratio
        self.length = length
        self.blank_lines = blank_lines
        self.exclusive = exclusive

    def score_batch(self, texts: Texts) -> Array:
        length, blank_lines = self.length, self.blank_lines

        def score(text: str) -> float:
            lines = lines_of(text, blank_lines)
            return sum(len(line) <= length for line in lines) / len(lines) if lines else 1.0

        return _score_each(texts, score)


@builtin
class DuplicateLineCharsFilter(AtMost):
    """Keep documents in which repeated lines have at most ``max_ratio`` of the characters, without newlines."""

    rule_text = "at most {0.most:g} of the characters are in lines that came before"
    thresholds = {"max_ratio": "most"}

    def __init__(self, max_ratio: float = 0.01, exclusive: bool = False) -> None:
        self.most = max_ratio
        self.exclusive = exclusive

    def score_batch(self, texts: Texts) -> Array:
        return _score_each(texts, _repeated)


def _repeated(text: str) -> float:
    lines = lines_of(text)
    if not lines:
        return 1.0
    seen = set(lines)
    if len(seen) == len(lines):
        return 0.0
    repeated = sum(map(len, lines)) - sum(map(len, seen))
    return repeated / (len(text) - text.count("\n") - text.count("\r\n"))


@builtin
class NewlinesToWordsFilter(AtMost):
    """Keep documents with at most ``max_ratio`` newlines per word. Words are separated by white space."""

    rule_text = "at most {0.most:g} newlines for each word"
    thresholds = {"max_ratio": "most"}

    def __init__(self, max_ratio: float = 0.3) -> None:
        self.most = max_ratio

    def score_batch(self, texts: Texts) -> Array:
        def score(text: str) -> float:
            words = len(text.split())
            return text.count("\n") / words if words else np.inf

        return _score_each(texts, score)
