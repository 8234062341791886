"""The rules of the benchmark as NeMo Curator's filters, by the names that gristmill gives them."""

from nemo_curator.stages.text.filters.heuristic import repetition, string

RULES = {
    "word_count": string.WordCountFilter(50, 100000),
    "mean_word_length": string.MeanWordLengthFilter(3, 10),
    "symbols_to_words": string.SymbolsToWordsFilter(0.1),
    "bullets": string.BulletsFilter(0.9),
    "ellipsis": string.EllipsisFilter(0.3),
    "words_without_alphabets": string.WordsWithoutAlphabetsFilter(0.8),
    "common_english_words": string.CommonEnglishWordsFilter(2),
    "repeated_lines": repetition.RepeatedLinesFilter(0.7),
    "repeated_paragraphs": repetition.RepeatedParagraphsFilter(0.7),
    "repeated_lines_by_char": repetition.RepeatedLinesByCharFilter(0.8),
    "repeated_paragraphs_by_char": repetition.RepeatedParagraphsByCharFilter(0.8),
    **{
        f"repeating_top_{n}_grams": repetition.RepeatingTopNGramsFilter(n, most)
        for n, most in ((2, 0.2), (3, 0.18), (4, 0.16))
    },
    **{
        f"repeating_duplicate_{n}_grams": repetition.RepeatingDuplicateNGramsFilter(n, most)
        for n, most in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
    },
}
