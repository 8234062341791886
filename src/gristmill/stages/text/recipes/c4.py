"""C4's rules: Raffel et al., 2020."""

from __future__ import annotations

from gristmill.stages.text.recipes.recipe import Recipe, Rule

C4 = Recipe(
    "c4",
    1,
    "the rules by which C4 was cleaned: pages, lines, sentences",
    "Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, "
    "JMLR 21(140), section 2.2, and the code that made it, TensorFlow Datasets' c4_utils",
    (
        Rule(
            "lorem_ipsum",
            "PhraseFilter",
            {"phrases": ["lorem ipsum"]},
            "Pages with the phrase 'lorem ipsum' are dropped.",
            "Here on the whole page, as the paper says; the code looks only at lines that it keeps.",
        ),
        Rule(
            "curly_bracket",
            "PhraseFilter",
            {"phrases": ["{"]},
            "Pages with a curly bracket are dropped: they contain code.",
            "Here on the whole page, as the paper says; the code looks only at lines that it keeps.",
        ),
        Rule(
            "bad_words",
            "BadWordsFilter",
            {},
            "Pages with a word of the List of Dirty, Naughty, Obscene or Otherwise Bad Words are dropped.",
            "gristmill does not contain the list, so this rule keeps everything without one: "
            "set bad_words.file to a file with a word in each line.",
        ),
        Rule(
            "lines",
            "C4Lines",
            {"min_words": 5, "max_word_length": 1000},
            'Lines stay if they end in a terminal mark (. ? ! "), not in an ellipsis, and have at least 5 words. Lines '
            "that mention JavaScript, cookies, terms of use or privacy policies, and lines with a word of more than "
            "1,000 characters are removed. Citation marks ([1], [edit], [citation needed]) are removed.",
            "As in the final paper and the code; the first drafts of the paper required 3 words.",
        ),
        Rule(
            "sentences",
            "SentenceCountFilter",
            {"min_sentences": 3},
            "Pages with fewer than 3 remaining sentences are dropped.",
            "As in the final paper and the code; first drafts required 5. Sentences are counted by their end marks.",
        ),
    ),
)
