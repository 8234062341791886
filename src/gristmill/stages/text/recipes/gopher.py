"""Gopher's rules: Rae et al., 2021."""

from __future__ import annotations

from gristmill.stages.text.recipes.recipe import Recipe, Rule

PAPER = "Rae et al. 2021, Scaling Language Models: Methods, Analysis & Insights from Training Gopher, arXiv 2112.11446"

QUALITY = Recipe(
    "gopher-quality",
    1,
    "Gopher's rules for the quality of a document",
    f"{PAPER}, section A.1.1, 'Quality filtering'",
    (
        Rule("word_count", "WordCountFilter", {"min_words": 50, "max_words": 100_000}, "Between 50 and 100,000 words."),
        Rule(
            "mean_word_length",
            "MeanWordLengthFilter",
            {"min_mean_word_length": 3, "max_mean_word_length": 10},
            "Words of 3 to 10 characters on average.",
        ),
        Rule(
            "symbols_to_words",
            "SymbolsToWordsFilter",
            {"max_symbol_to_word_ratio": 0.1},
            "No more than 0.1 hash signs, or ellipses, for each word.",
            "Either sign by itself; NeMo Curator counts both together, and only where they stand alone.",
        ),
        Rule(
            "bullets",
            "BulletsFilter",
            {"max_bullet_lines_ratio": 0.9},
            "At most 90 % of the lines begin with a bullet point.",
        ),
        Rule(
            "ellipsis",
            "EllipsisFilter",
            {"max_num_lines_ending_with_ellipsis_ratio": 0.3},
            "At most 30 % of the lines end in an ellipsis.",
        ),
        Rule(
            "words_with_letters",
            "WordsWithoutAlphabetsFilter",
            {"min_words_with_alphabets": 0.8},
            "At least 80 % of the words have a letter.",
        ),
        Rule(
            "stop_words",
            "CommonEnglishWordsFilter",
            {"min_num_common_words": 2, "stop_at_false": False},
            "At least two different ones of: the, be, to, of, and, that, have, with.",
        ),
    ),
)

_TOP = {2: 0.20, 3: 0.18, 4: 0.16}
_DUPLICATE = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}

N_GRAMS = (
    *(
        Rule(
            f"top_{n}_gram",
            "RepeatingTopNGramsFilter",
            {"n": n, "max_repeating_ngram_ratio": share},
            f"The most frequent {n}-gram has at most {share:.0%} of the characters.",
        )
        for n, share in _TOP.items()
    ),
    *(
        Rule(
            f"duplicate_{n}_grams",
            "RepeatingDuplicateNGramsFilter",
            {"n": n, "max_repeating_duplicate_ngram_ratio": share},
            f"Repeated {n}-grams have at most {share:.0%} of the characters.",
        )
        for n, share in _DUPLICATE.items()
    ),
)

REPETITION = Recipe(
    "gopher-repetition",
    1,
    "Gopher's rules against repetition within a document",
    f"{PAPER}, section A.1.1, 'Repetition removal', and table A1",
    (
        Rule(
            "duplicate_lines",
            "RepeatedLinesFilter",
            {"max_repeated_line_fraction": 0.7},
            "At most 30 % of the lines repeat an earlier line.",
            "The argument is the least share of different lines, 1 - 0.30, as in NeMo Curator.",
        ),
        Rule(
            "duplicate_paragraphs",
            "RepeatedParagraphsFilter",
            {"max_repeated_paragraphs_ratio": 0.7},
            "At most 30 % of the paragraphs repeat an earlier paragraph.",
            "The argument is the least share of different paragraphs, 1 - 0.30.",
        ),
        Rule(
            "duplicate_line_chars",
            "RepeatedLinesByCharFilter",
            {"max_repeated_lines_char_ratio": 0.8},
            "Repeated lines have at most 20 % of the characters.",
            "The argument is the least share of characters of different lines, 1 - 0.20.",
        ),
        Rule(
            "duplicate_paragraph_chars",
            "RepeatedParagraphsByCharFilter",
            {"max_repeated_paragraphs_char_ratio": 0.8},
            "Repeated paragraphs have at most 20 % of the characters.",
            "The argument is the least share of characters of different paragraphs, 1 - 0.20.",
        ),
        *N_GRAMS,
    ),
)
