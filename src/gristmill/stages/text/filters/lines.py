"""Filters by how lines begin and end. Blank lines do not count; see `gristmill.stages.text.lines`."""

from __future__ import annotations

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array
from gristmill.stages.registry import builtin
from gristmill.stages.text.filters.thresholds import AtMost, ratio


@builtin
class BulletsFilter(AtMost):
    """Drops documents in which too many lines begin with a bullet (Gopher: 90%).

    Bullets are those of NeMo Curator, the hyphen, the asterisk, the en dash and ``▶ ◀ ■ □ ▪ ▫``: plain text has no
    others. A document without lines scores 1 and is dropped.
    """

    name = "bullet_ratio"
    needs = ("lines",)
    rule_text = "at most {0.percent} of the lines begin with a bullet"

    def __init__(self, max_bullet_lines_ratio: float = 0.9) -> None:
        self.most = max_bullet_lines_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.lines.bullets, texts.lines.count, empty=1.0)


@builtin
class PunctuationFilter(AtMost):
    """Drops documents in which too many lines do not end like a sentence (after C4).

    A sentence ends with ``. ? !``, an ellipsis or a quotation mark, or with their counterparts in other scripts; NeMo
    Curator knows ``. ? ! " '``. A document without lines scores 1 and is dropped.
    """

    name = "punctuation"
    needs = ("lines",)
    rule_text = "at most {0.percent} of the lines end without an end mark"

    def __init__(self, max_num_sentences_without_endmark_ratio: float = 0.85) -> None:
        self.most = max_num_sentences_without_endmark_ratio

    def score_batch(self, texts: Texts) -> Array:
        lines = texts.lines
        return ratio(lines.count - lines.end_marks, lines.count, empty=1.0)


@builtin
class EllipsisFilter(AtMost):
    """Drops documents in which too many lines end with an ellipsis (Gopher: 30%).

    An ellipsis is ``...``, U+2026 or U+22EF, bare or alone in round or square brackets. NeMo Curator also counts lines
    that end with "read more" or "-»". A document without lines scores 1 and is dropped.
    """

    name = "ellipsis"
    needs = ("lines",)
    rule_text = "at most {0.percent} of the lines end with an ellipsis"

    def __init__(self, max_num_lines_ending_with_ellipsis_ratio: float = 0.3) -> None:
        self.most = max_num_lines_ending_with_ellipsis_ratio

    def score_batch(self, texts: Texts) -> Array:
        return ratio(texts.lines.ellipses, texts.lines.count, empty=1.0)
