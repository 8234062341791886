"""FineWeb's own rules: Penedo et al., 2024."""

from __future__ import annotations

from gristmill.stages.text.recipes.recipe import Recipe, Rule

FINEWEB = Recipe(
    "fineweb",
    1,
    "the rules that FineWeb added to Gopher's and C4's",
    "Penedo et al. 2024, The FineWeb Datasets, arXiv 2406.17557, section 3.6, and the code it was made by, datatrove's "
    "FineWebQualityFilter",
    (
        Rule(
            "line_punctuation",
            "LinePunctuationFilter",
            {"min_ratio": 0.12},
            "At least 12 % of the lines end in a punctuation mark.",
        ),
        Rule(
            "short_lines",
            "ShortLinesFilter",
            {"max_ratio": 0.67, "length": 30},
            "At most 67 % of the lines have 30 characters or fewer.",
        ),
        Rule(
            "duplicate_line_chars",
            "DuplicateLineCharsFilter",
            {"max_ratio": 0.01},
            "Lines that were there before hold at most 1 % of the characters.",
            "0.01 is the code's default; the paper says 0.1.",
        ),
        Rule(
            "newlines",
            "NewlinesToWordsFilter",
            {"max_ratio": 0.3},
            "At most 0.3 newlines for each word.",
            "In the code only. It counts punctuation marks as words; here words are what white space separates.",
        ),
    ),
)
