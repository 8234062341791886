"""Filters, and the stages that run them."""

from gristmill.stages.text.filters.code import (
    AlphaFilter,
    GeneralCommentToCodeFilter,
    HTMLBoilerplateFilter,
    NumberOfLinesOfCodeFilter,
    PerExtensionFilter,
    PythonCommentToCodeFilter,
    XMLHeaderFilter,
)
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.text.filters.fasttext import FastTextQualityFilter
from gristmill.stages.text.filters.fineweb import (
    DuplicateLineCharsFilter,
    LinePunctuationFilter,
    NewlinesToWordsFilter,
    ShortLinesFilter,
)
from gristmill.stages.text.filters.histogram import HistogramFilter
from gristmill.stages.text.filters.language import FastTextLangId, LanguageIdentification
from gristmill.stages.text.filters.phrases import (
    BadWordsFilter,
    BoilerPlateStringFilter,
    PhraseFilter,
    PornographicUrlsFilter,
    SentenceCountFilter,
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
from gristmill.stages.text.filters.shares import (
    BulletsFilter,
    EllipsisFilter,
    NonAlphaNumericFilter,
    NumbersFilter,
    ParenthesesFilter,
    PunctuationFilter,
    WhiteSpaceFilter,
)
from gristmill.stages.text.filters.tokens import TokenCountFilter, TokenizerFertilityFilter
from gristmill.stages.text.filters.words import (
    CharacterCountFilter,
    CommonEnglishWordsFilter,
    LongWordFilter,
    MeanWordLengthFilter,
    StopWordsFilter,
    SymbolsToWordsFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
)

__all__ = [
    "AlphaFilter",
    "BadWordsFilter",
    "BoilerPlateStringFilter",
    "BulletsFilter",
    "CharacterCountFilter",
    "CommonEnglishWordsFilter",
    "DocumentFilter",
    "DuplicateLineCharsFilter",
    "EllipsisFilter",
    "FastTextLangId",
    "FastTextQualityFilter",
    "Filter",
    "GeneralCommentToCodeFilter",
    "HTMLBoilerplateFilter",
    "HistogramFilter",
    "LanguageIdentification",
    "LinePunctuationFilter",
    "LongWordFilter",
    "MeanWordLengthFilter",
    "NewlinesToWordsFilter",
    "NonAlphaNumericFilter",
    "NumberOfLinesOfCodeFilter",
    "NumbersFilter",
    "ParenthesesFilter",
    "PerExtensionFilter",
    "PhraseFilter",
    "PornographicUrlsFilter",
    "PunctuationFilter",
    "PythonCommentToCodeFilter",
    "RepeatedLinesByCharFilter",
    "RepeatedLinesFilter",
    "RepeatedParagraphsByCharFilter",
    "RepeatedParagraphsFilter",
    "RepeatingDuplicateNGramsFilter",
    "RepeatingTopNGramsFilter",
    "Score",
    "ScoreFilter",
    "SentenceCountFilter",
    "ShortLinesFilter",
    "StopWordsFilter",
    "SubstringFilter",
    "SymbolsToWordsFilter",
    "TokenCountFilter",
    "TokenizerFertilityFilter",
    "UrlsFilter",
    "WhiteSpaceFilter",
    "WordCountFilter",
    "WordsWithoutAlphabetsFilter",
    "XMLHeaderFilter",
]
