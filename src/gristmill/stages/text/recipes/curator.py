"""NeMo Curator's chain of heuristics for English."""

from __future__ import annotations

from typing import Any

from gristmill.stages.text.recipes.gopher import N_GRAMS
from gristmill.stages.text.recipes.recipe import Recipe, Rule

_CHAIN: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    (
        "non_alpha_numeric",
        "NonAlphaNumericFilter",
        {"max_non_alpha_numeric_to_text_ratio": 0.25},
        "At most 25 % of the characters are neither letters nor digits.",
    ),
    (
        "symbols_to_words",
        "SymbolsToWordsFilter",
        {"max_symbol_to_word_ratio": 0.1},
        "At most 0.1 symbols (#, ellipses) for each word.",
    ),
    (
        "numbers",
        "NumbersFilter",
        {"max_number_to_text_ratio": 0.15},
        "At most 15 % of the characters are digits.",
    ),
    ("urls", "UrlsFilter", {"max_url_to_text_ratio": 0.2}, "At most 20 % of the characters are in URLs."),
    (
        "white_space",
        "WhiteSpaceFilter",
        {"max_white_space_ratio": 0.25},
        "At most 25 % of the characters are white space.",
    ),
    (
        "parentheses",
        "ParenthesesFilter",
        {"max_parentheses_ratio": 0.1},
        "At most 10 % of the characters are parentheses.",
    ),
    (
        "boilerplate",
        "BoilerPlateStringFilter",
        {"remove_if_at_top_or_bottom": True, "max_boilerplate_string_ratio": 0.4},
        "At most 40 % of the paragraphs are boilerplate: policies, cookies, terms of use; and no lorem ipsum.",
    ),
    (
        "duplicate_lines",
        "RepeatedLinesFilter",
        {"max_repeated_line_fraction": 0.7},
        "At least 70 % of the lines are different ones.",
    ),
    (
        "duplicate_paragraphs",
        "RepeatedParagraphsFilter",
        {"max_repeated_paragraphs_ratio": 0.7},
        "At least 70 % of the paragraphs are different ones.",
    ),
    (
        "duplicate_line_chars",
        "RepeatedLinesByCharFilter",
        {"max_repeated_lines_char_ratio": 0.8},
        "At least 80 % of the characters are in different lines.",
    ),
    (
        "duplicate_paragraph_chars",
        "RepeatedParagraphsByCharFilter",
        {"max_repeated_paragraphs_char_ratio": 0.8},
        "At least 80 % of the characters are in different paragraphs.",
    ),
    ("word_count", "WordCountFilter", {"min_words": 50, "max_words": 100_000}, "Between 50 and 100,000 words."),
    (
        "punctuation",
        "PunctuationFilter",
        {"max_num_sentences_without_endmark_ratio": 0.85},
        "At most 85 % of the sentences lack an end mark.",
    ),
    (
        "words_with_letters",
        "WordsWithoutAlphabetsFilter",
        {"min_words_with_alphabets": 0.8},
        "At least 80 % of the words have a letter.",
    ),
    (
        "common_english_words",
        "CommonEnglishWordsFilter",
        {"min_num_common_words": 2, "stop_at_false": True},
        "At least two of the commonest English words.",
    ),
    (
        "mean_word_length",
        "MeanWordLengthFilter",
        {"min_mean_word_length": 3, "max_mean_word_length": 10},
        "Words of 3 to 10 characters on average.",
    ),
    ("long_word", "LongWordFilter", {"max_word_length": 1000}, "No word of more than 1,000 characters."),
    (
        "ellipsis",
        "EllipsisFilter",
        {"max_num_lines_ending_with_ellipsis_ratio": 0.3},
        "At most 30 % of the lines end in an ellipsis.",
    ),
)

ENGLISH = Recipe(
    "curator-english-heuristics",
    1,
    "NeMo Curator's chain of heuristics for English text",
    "NeMo Curator 1.4, config/text/heuristic_filter_english_pipeline.yaml; most of its rules are Gopher's",
    (
        *(Rule(*one) for one in _CHAIN),
        *N_GRAMS,
        Rule(
            "bullets",
            "BulletsFilter",
            {"max_bullet_lines_ratio": 0.9},
            "At most 90 % of the lines begin with a bullet point.",
        ),
    ),
)
