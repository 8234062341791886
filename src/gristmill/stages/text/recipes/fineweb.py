"""FineWeb's own rules: Penedo et al., 2024.

datatrove, which made FineWeb, changed its FineWebQualityFilter once. Releases 0.2.0 (April 2024, the first with
the filter, published with the data set) and 0.3.0 count ``. ' " ! ?`` as marks, count blank lines, and drop at the
limits. From 0.4.0 to 0.10.1 the marks are those that end sentences in Unicode, without quotation marks; blank lines do
not count; scores at the limits are kept.
"""

from __future__ import annotations

from gristmill.stages.text.recipes.recipe import Recipe, Rule

PAPER = "Penedo et al. 2024, The FineWeb Datasets, arXiv 2406.17557, section 3.6"
SUMMARY = "the rules that FineWeb added to Gopher's and C4's"

NEWLINES = Rule(
    "newlines",
    "NewlinesToWordsFilter",
    {"max_ratio": 0.3},
    "At most 0.3 newlines for each word.",
    "In the code only. It counts punctuation marks as words; here words are what white space separates.",
)

LATER = Recipe(
    "fineweb",
    1,
    SUMMARY,
    f"{PAPER}, as in FineWebQualityFilter of datatrove 0.4.0 to 0.10.1",
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
            "Repeated lines have at most 1 % of the characters.",
            "0.01 is the code's default; the paper says 0.1.",
        ),
        NEWLINES,
    ),
)

FINEWEB = Recipe(
    "fineweb",
    2,
    SUMMARY,
    f"{PAPER}, as in FineWebQualityFilter of datatrove 0.2.0, by which FineWeb was made",
    (
        Rule(
            "line_punctuation",
            "LinePunctuationFilter",
            {"min_ratio": 0.12, "marks": ".'\"!?", "blank_lines": True, "exclusive": True},
            "More than 12 % of the lines end in a full stop, an exclamation or question mark, or a straight quote.",
            "Curly quotes do not count: put QuotationNormalizer before the recipe, or set line_punctuation.marks.",
        ),
        Rule(
            "short_lines",
            "ShortLinesFilter",
            {"max_ratio": 0.67, "length": 30, "blank_lines": True, "exclusive": True},
            "Fewer than 67 % of the lines have 30 characters or fewer. Blank lines count.",
        ),
        Rule(
            "duplicate_line_chars",
            "DuplicateLineCharsFilter",
            {"max_ratio": 0.01, "exclusive": True},
            "Repeated lines have less than 1 % of the characters.",
            "0.01 is the code's default; the paper says 0.1.",
        ),
        NEWLINES,
    ),
)
