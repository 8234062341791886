"""The rules of the benchmark as NeMo Curator's filters, by the names that they have in gristmill's recipes."""

from nemo_curator.stages.text.filters.heuristic import repetition, string

RULES = {
    "word_count": string.WordCountFilter(50, 100000),
    "mean_word_length": string.MeanWordLengthFilter(3, 10),
    "symbols_to_words": string.SymbolsToWordsFilter(0.1),
    "bullets": string.BulletsFilter(0.9),
    "ellipsis": string.EllipsisFilter(0.3),
    "words_with_letters": string.WordsWithoutAlphabetsFilter(0.8),
    "stop_words": string.CommonEnglishWordsFilter(2),
    "duplicate_lines": repetition.RepeatedLinesFilter(0.7),
    "duplicate_paragraphs": repetition.RepeatedParagraphsFilter(0.7),
    "duplicate_line_chars": repetition.RepeatedLinesByCharFilter(0.8),
    "duplicate_paragraph_chars": repetition.RepeatedParagraphsByCharFilter(0.8),
    **{f"top_{n}_gram": repetition.RepeatingTopNGramsFilter(n, most) for n, most in ((2, 0.2), (3, 0.18), (4, 0.16))},
    **{
        f"duplicate_{n}_grams": repetition.RepeatingDuplicateNGramsFilter(n, most)
        for n, most in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
    },
}
