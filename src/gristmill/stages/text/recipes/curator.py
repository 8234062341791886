"""NeMo Curator's chain of heuristics for English."""

from __future__ import annotations

from gristmill.stages.text.recipes.gopher import N_GRAMS, QUALITY, REPETITION
from gristmill.stages.text.recipes.recipe import Recipe, Rule

_GOPHER = {rule.key: rule for rule in (*QUALITY.rules, *REPETITION.rules)}

ENGLISH = Recipe(
    "curator-english-heuristics",
    1,
    "NeMo Curator's chain of heuristics for English text",
    "NeMo Curator 1.4, config/text/heuristic_filter_english_pipeline.yaml; most of its rules are Gopher's",
    (
        Rule(
            "non_alpha_numeric",
            "NonAlphaNumericFilter",
            {"max_non_alpha_numeric_to_text_ratio": 0.25},
            "At most 25 % of the characters are neither letters nor digits.",
        ),
        _GOPHER["symbols_to_words"],
        Rule(
            "numbers",
            "NumbersFilter",
            {"max_number_to_text_ratio": 0.15},
            "At most 15 % of the characters are digits.",
        ),
        Rule("urls", "UrlsFilter", {"max_url_to_text_ratio": 0.2}, "At most 20 % of the characters are in URLs."),
        Rule(
            "white_space",
            "WhiteSpaceFilter",
            {"max_white_space_ratio": 0.25},
            "At most 25 % of the characters are white space.",
        ),
        Rule(
            "parentheses",
            "ParenthesesFilter",
            {"max_parentheses_ratio": 0.1},
            "At most 10 % of the characters are parentheses.",
        ),
        Rule(
            "boilerplate",
            "BoilerPlateStringFilter",
            {"remove_if_at_top_or_bottom": True, "max_boilerplate_string_ratio": 0.4},
            "At most 40 % of the paragraphs are boilerplate: policies, cookies, terms of use; and no lorem ipsum.",
        ),
        _GOPHER["duplicate_lines"],
        _GOPHER["duplicate_paragraphs"],
        _GOPHER["duplicate_line_chars"],
        _GOPHER["duplicate_paragraph_chars"],
        _GOPHER["word_count"],
        Rule(
            "punctuation",
            "PunctuationFilter",
            {"max_num_sentences_without_endmark_ratio": 0.85},
            "At most 85 % of the sentences lack an end mark.",
        ),
        _GOPHER["words_with_letters"],
        Rule(
            "common_english_words",
            "CommonEnglishWordsFilter",
            {"min_num_common_words": 2, "stop_at_false": True},
            "At least two of the commonest English words.",
        ),
        _GOPHER["mean_word_length"],
        Rule("long_word", "LongWordFilter", {"max_word_length": 1000}, "No word of more than 1,000 characters."),
        _GOPHER["ellipsis"],
        *N_GRAMS,
        _GOPHER["bullets"],
    ),
)
