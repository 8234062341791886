"""The verdicts of the rules of datatrove's Gopher filters for each document. verdicts_datatrove.py SOURCE OUT

Each rule is a filter of its own with all others switched off. Under ``split`` are the verdicts of the same rules with
words as `str.split` gives them in place of spaCy's.
"""

import json
import sys
from pathlib import Path

from datatrove.data import Document
from datatrove.pipeline.filters import (
    GopherQualityFilter,
    GopherRepetitionFilter,
    gopher_quality_filter,
    gopher_repetition_filter,
)

QUALITY = {
    "word_count": ("min_doc_words", "max_doc_words"),
    "mean_word_length": ("min_avg_word_length", "max_avg_word_length"),
    "symbols_to_words": ("max_symbol_word_ratio",),
    "bullets": ("max_bullet_lines_ratio",),
    "ellipsis": ("max_ellipsis_lines_ratio",),
    "words_with_letters": ("max_non_alpha_words_ratio",),
    "stop_words": ("min_stop_words",),
}
LINES = {
    "duplicate_lines": "dup_line_frac",
    "duplicate_paragraphs": "dup_para_frac",
    "duplicate_line_chars": "dup_line_char_frac",
    "duplicate_paragraph_chars": "dup_para_char_frac",
}
WHOLE = GopherRepetitionFilter()


def quality(*rules: str) -> GopherQualityFilter:
    off = {name: None for names in QUALITY.values() for name in names if name not in rules}
    return GopherQualityFilter(**off)


def repetition(line_rule: str = "", top: tuple = (), duplicate: tuple = ()) -> GopherRepetitionFilter:
    off = {name: None for name in LINES.values() if name != line_rule}
    return GopherRepetitionFilter(**off, top_n_grams=top, dup_n_grams=duplicate)


RULES = {
    **{rule: quality(*names) for rule, names in QUALITY.items()},
    **{rule: repetition(name) for rule, name in LINES.items()},
    **{f"top_{n}_gram": repetition(top=((n, most),)) for n, most in WHOLE.top_n_grams},
    **{f"duplicate_{n}_grams": repetition(duplicate=((n, most),)) for n, most in WHOLE.dup_n_grams},
}


def judge(filter_: object, text: str) -> "bool | str":
    """Whether it keeps the document, or the error that it ends with."""
    try:
        result = filter_.filter(Document(text=text, id=""))
    except ArithmeticError as error:
        return type(error).__name__
    return result if isinstance(result, bool) else result[0]


def main() -> None:
    modules = (gopher_quality_filter, gopher_repetition_filter)
    own = gopher_quality_filter.split_into_words
    with open(sys.argv[2], "w") as out:
        for path in sorted(Path(sys.argv[1]).glob("*.jsonl")):
            for line in path.open(encoding="utf-8"):
                document = json.loads(line)
                found = {}
                for name, splitter in (("verdicts", own), ("split", lambda text, language: text.split())):
                    for module in modules:
                        module.split_into_words = splitter
                    found[name] = {rule: judge(filter_, document["text"]) for rule, filter_ in RULES.items()}
                out.write(json.dumps({"id": document["id"], **found}) + "\n")


if __name__ == "__main__":
    main()
