"""Filters, and the stages that run them."""

from gristmill.stages.text.filters.characters import (
    NonAlphaNumericFilter,
    NumbersFilter,
    ParenthesesFilter,
    WhiteSpaceFilter,
)
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.text.filters.lines import BulletsFilter, EllipsisFilter, PunctuationFilter
from gristmill.stages.text.filters.phrases import (
    BoilerPlateStringFilter,
    PornographicUrlsFilter,
    SubstringFilter,
    UrlsFilter,
)
from gristmill.stages.text.filters.repetition import (
    RepeatedLinesByCharFilter,
    RepeatedLinesFilter,
    RepeatedParagraphsByCharFilter,
    RepeatedParagraphsFilter,
    RepeatingDuplicateNGramsFilter,
    RepeatingTopNGramsFilter,
)
from gristmill.stages.text.filters.score_filter import Filter, Score, ScoreFilter
from gristmill.stages.text.filters.words import (
    CommonEnglishWordsFilter,
    LongWordFilter,
    MeanWordLengthFilter,
    SymbolsToWordsFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
)

__all__ = [
    "BoilerPlateStringFilter",
    "BulletsFilter",
    "CommonEnglishWordsFilter",
    "DocumentFilter",
    "EllipsisFilter",
    "Filter",
    "LongWordFilter",
    "MeanWordLengthFilter",
    "NonAlphaNumericFilter",
    "NumbersFilter",
    "ParenthesesFilter",
    "PornographicUrlsFilter",
    "PunctuationFilter",
    "RepeatedLinesByCharFilter",
    "RepeatedLinesFilter",
    "RepeatedParagraphsByCharFilter",
    "RepeatedParagraphsFilter",
    "RepeatingDuplicateNGramsFilter",
    "RepeatingTopNGramsFilter",
    "Score",
    "ScoreFilter",
    "SubstringFilter",
    "SymbolsToWordsFilter",
    "UrlsFilter",
    "WhiteSpaceFilter",
    "WordCountFilter",
    "WordsWithoutAlphabetsFilter",
]
