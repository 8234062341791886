"""The stages that run filters, on batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from gristmill.kernels.texts import Texts
from gristmill.stages.text.filters import (
    DocumentFilter,
    Filter,
    MeanWordLengthFilter,
    NumbersFilter,
    RepeatingTopNGramsFilter,
    Score,
    ScoreFilter,
    WordCountFilter,
)
from gristmill.stages.text.filters.columns import texts_of
from gristmill.tasks import DocumentBatch
from gristmill.tasks.document import ID


class Short(DocumentFilter):
    """By single documents only."""

    def score_document(self, text: str) -> int:
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score <= 3


class Foreign:
    """No subclass of ours."""

    name = "foreign"

    def score_document(self, text: str) -> int:
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score > 1


def batch(*strings: str | None, **columns: list) -> DocumentBatch:
    return DocumentBatch(data=pa.table({"text": pa.array(strings, pa.large_string()), **columns}))


def texts(made: DocumentBatch) -> list[str]:
    return made.data.column("text").to_pylist()


def dropped(made: DocumentBatch) -> list[tuple[str, str, float | None]]:
    return [
        (text, reason, score)
        for one in made.account.dropped
        for text, reason, score in zip(
            one.rows.column("text").to_pylist(), one.reasons, one.scores or [None] * len(one.reasons), strict=True
        )
    ]


def test_documents_go_with_reason_and_score():
    made = ScoreFilter(WordCountFilter(2, 3)).process(batch("a", "a b", "a b c d"))
    assert texts(made) == ["a b"]
    assert dropped(made) == [("a", "too few words", 1.0), ("a b c d", "too many words", 4.0)]


def test_several_filters_run_one_after_the_other_on_what_is_left():
    seen = []

    class Spy(Short):
        def score_document(self, text: str) -> int:
            seen.append(text)
            return len(text)

    made = ScoreFilter([WordCountFilter(2, 9), Spy()]).process(batch("one", "a b", "a long one"))
    assert seen == ["a b", "a long one"]
    assert texts(made) == ["a b"]
    assert dropped(made) == [("one", "too few words", 1.0), ("a long one", "spy", 10.0)]


def test_what_one_filter_computed_serves_the_next():
    task = batch("a b", "a", "a b a b")
    made = ScoreFilter([WordCountFilter(2, 9), MeanWordLengthFilter(1)]).process(task)
    assert {"words"} <= set(texts_of(made, "text")._computed)
    again = ScoreFilter(RepeatingTopNGramsFilter(2, 1.0), score_field="top").process(made)
    assert again.data.column("top").to_pylist() == [0.0, 6 / 7]


def test_scores_are_stored_under_the_names_that_are_given():
    stage = ScoreFilter([WordCountFilter(2, 9), NumbersFilter(1.0)], score_field=["words", None])
    assert stage.outputs() == (["data"], ["words"])
    made = stage.process(batch("a", "a b"))
    assert made.columns == ["text", "words"]
    assert made.data.column("words").to_pylist() == [2]


def test_scores_that_were_not_computed_are_null_in_what_is_dropped():
    made = ScoreFilter([WordCountFilter(2, 9), NumbersFilter(0.4)], keep_scores=True).process(batch("a", "1 2", "b c"))
    (gone,) = made.account.dropped
    assert gone.rows.column("word_count_score").to_pylist() == [1, 2]
    assert gone.rows.column("numbers_ratio_score").to_pylist() == [None, 2 / 3]
    assert made.data.column("numbers_ratio_score").to_pylist() == [0.0]


def test_all_scores_are_kept_under_the_filters_names():
    stage = ScoreFilter([WordCountFilter(1), NumbersFilter(), NumbersFilter(0.5)], keep_scores=True)
    assert stage.outputs()[1] == ["word_count_score", "numbers_ratio_score", "numbers_ratio_score_2"]
    assert stage.process(batch("a 1")).data.column("numbers_ratio_score_2").to_pylist() == []
    assert stage.process(batch("abcdefgh 1")).data.column("numbers_ratio_score_2").to_pylist() == [0.1]


def test_inverted_filters_keep_exactly_what_they_would_drop():
    strings = ["a", "a b", "1 2 3", "12"]
    several = [WordCountFilter(2, 9), NumbersFilter(0.1)]
    kept = texts(ScoreFilter(several).process(batch(*strings)))
    made = ScoreFilter(several, invert=True).process(batch(*strings))
    assert sorted(kept + texts(made)) == sorted(strings)
    assert dropped(made) == [("a b", "kept by all of word_count, numbers_ratio", None)]


def test_single_filters_can_be_inverted():
    made = ScoreFilter([WordCountFilter(2, 9), NumbersFilter(0.1)], invert=[False, True]).process(batch("a b", "1 2"))
    assert texts(made) == ["1 2"]
    assert dropped(made) == [("a b", "not numbers_ratio", 0.0)]
    alone = ScoreFilter(WordCountFilter(2, 9), invert=True).process(batch("a", "a b"))
    assert texts(alone) == ["a"]
    assert dropped(alone) == [("a b", "not word_count", 2.0)]


def test_each_filter_may_have_its_text_field():
    stage = ScoreFilter([WordCountFilter(2, 9), Short()], text_field=["text", "title"])
    assert stage.inputs() == (["data"], ["text", "title"])
    assert texts(stage.process(batch("a b", "c d", title=["long title", "abc"]))) == ["c d"]


def test_filters_by_single_documents_and_those_of_others_will_do():
    assert texts(ScoreFilter([Short(), Foreign()]).process(batch("a", "abc", "abcd"))) == ["abc"]
    assert texts(ScoreFilter(Foreign(), score_field="n").process(batch("a", "abc"))) == ["abc"]


@pytest.mark.parametrize("one", [WordCountFilter(), Short(), RepeatingTopNGramsFilter(3)])
def test_a_batch_of_nothing_passes(one):
    made = ScoreFilter(one, score_field="score").process(batch())
    assert made.columns == ["text", "score"]
    assert made.num_items == 0
    assert Filter(one, "score").process(made).num_items == 0


def test_a_null_is_an_empty_text():
    made = ScoreFilter(WordCountFilter(1), score_field="n").process(batch("a", None))
    assert texts(made) == ["a"]


def test_scores_may_be_anything_that_fits_into_a_column():
    class Language(DocumentFilter):
        def score_document(self, text: str) -> list:
            return [0.5, "en" if text.isascii() else "ru"]

        def keep_document(self, score: list) -> bool:
            return score[1] == "en"

    class Pair(DocumentFilter):
        def score_document(self, text: str) -> list[int]:
            return [len(text), 1]

        def keep_document(self, score: list[int]) -> bool:
            return score[0] == 1

    class Word(DocumentFilter):
        def score_document(self, text: str) -> str | None:
            return text.upper() if text != "b" else None

        def keep_document(self, score: str | None) -> bool:
            return score is not None

    made = ScoreFilter(Language()).process(batch("a", "ж"))
    assert (texts(made), dropped(made)) == (["a"], [("ж", "language", None)])
    made = ScoreFilter(Pair(), score_field="pair").process(batch("a", "bc"))
    assert made.data.column("pair").to_pylist() == [[1, 1]]
    made = ScoreFilter(Word(), score_field="word").process(batch("a", "b"))
    assert (made.data.column("word").to_pylist(), dropped(made)) == (["A"], [("b", "word", None)])
    with pytest.raises(TypeError, match="'x' do not fit into one column"):
        Score(lambda text: [0.5, "en"], "x").process(batch("a"))


def test_what_a_users_filter_raises_is_raised():
    class Broken(DocumentFilter):
        def score_document(self, text: str) -> int:
            raise ZeroDivisionError(text)

        def keep_document(self, score: int) -> bool:
            return True

    with pytest.raises(ZeroDivisionError, match="abc"):
        ScoreFilter(Broken()).process(batch("abc"))


def test_scores_and_verdicts_must_be_one_for_each_document():
    class TooFew(DocumentFilter):
        def score_batch(self, texts: Texts) -> np.ndarray:
            return np.zeros(1)

        def keep_batch(self, scores: np.ndarray) -> np.ndarray:
            return np.ones(1, bool)

    with pytest.raises(ValueError, match=r"'too_few' gave scores of shape \(1,\) for 2 documents"):
        ScoreFilter(TooFew()).process(batch("a", "b"))
    with pytest.raises(ValueError, match=r"keep_batch of filter 'too_few' .* for 2 scores"):
        Filter(TooFew(), "n").process(batch("a", "b", n=[1, 2]))


def test_scoring_drops_nothing():
    made = Score([WordCountFilter(), len, Short()], ["words", "length", None]).process(batch("a b", "c"))
    assert made.data.to_pydict() == {"text": ["a b", "c"], "words": [2, 1], "length": [3, 1]}


def test_stored_scores_are_filtered_by_filters_and_by_functions():
    task = batch("a", "b", "c", n=[1, 60, None], q=[0.5, 0.9, 0.9])
    made = Filter([WordCountFilter(), lambda q: q > 0.8], ["n", "q"]).process(task)
    assert texts(made) == ["b"]
    assert [reason for _, reason, _ in dropped(made)] == ["too few words", "too few words"]
    made = Filter(lambda q: q > 0.8, "q", invert=True).process(batch("a", "b", q=[0.5, 0.9]))
    assert texts(made) == ["a"]


def test_a_stored_score_gives_the_verdict_that_a_fresh_one_gives():
    strings = ["a", "a b", "a b c d"]
    scored = Score(WordCountFilter(2, 3), "n").process(batch(*strings))
    assert texts(Filter(WordCountFilter(2, 3), "n").process(scored)) == texts(
        ScoreFilter(WordCountFilter(2, 3)).process(batch(*strings))
    )


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: ScoreFilter(WordCountFilter), TypeError, r"is a class: give an instance"),
        (lambda: ScoreFilter([]), ValueError, "no filter"),
        (lambda: ScoreFilter(len), TypeError, "not a filter"),
        (lambda: ScoreFilter(Short(), score_field="text"), ValueError, "overwrite"),
        (lambda: ScoreFilter([Short(), Short()], score_field="n"), ValueError, "1 names for 2 filters"),
        (lambda: ScoreFilter([Short(), Short()], score_field=["n", "n"]), ValueError, "twice"),
        (lambda: ScoreFilter([Short(), Short()], invert=[True]), ValueError, "invert has 1 values for 2 filters"),
        (lambda: Filter([Short(), Short()], ["n"]), ValueError, "filter_field has 1 values for 2 filters"),
        (lambda: ScoreFilter(Short(), "body").process(batch("a")), KeyError, "no column 'body'. Columns: text"),
        (lambda: ScoreFilter(Short(), "n").process(batch("a", n=[1])), TypeError, "'n' holds int64, not text"),
    ],
)
def test_errors_name_the_problem(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_preloading_loads_the_kernels_of_all_filters():
    from gristmill.kernels import features

    ScoreFilter([WordCountFilter(), NumbersFilter(), Short()]).preload()
    assert features.SPLIT_WORDS._compiled and features.COUNT_CLASSES._compiled
    features.FIND_BYTES._compiled = None
    Filter(lambda score: True, "n").preload()
    assert features.FIND_BYTES._compiled is None


def test_every_filter_names_the_kernels_that_it_uses(monkeypatch):
    """So that one that was preloaded loads none when it runs."""
    from gristmill.kernels import compile as compiling
    from gristmill.kernels import features
    from gristmill.stages.text import filters

    used = set()
    call = compiling.Kernel.__call__

    def watched(self, *given):
        used.add(self.name)
        return call(self, *given)

    monkeypatch.setattr(compiling.Kernel, "__call__", watched)
    kinds = [getattr(filters, name) for name in filters.__all__ if name.endswith("Filter")]
    kinds = [kind for kind in kinds if kind not in (DocumentFilter, ScoreFilter, Filter) and kind.needs]
    assert len(kinds) >= 23
    for kind in kinds:
        one = kind("a", "any") if kind is filters.SubstringFilter else kind()
        used.clear()
        one.score_batch(Texts.of(["the text"]))
        groups = [{kernel.name for kernel in features.KERNELS[group]} for group in one.needs]
        assert used <= set().union(*groups) and all(used & group for group in groups), kind


@pytest.mark.parametrize(("verdict", "words"), [(None, "is there a return missing"), ("no", "'no', not True or False")])
def test_a_verdict_that_is_none_is_an_error(verdict, words):
    class Mute(Short):
        def keep_document(self, score):
            return verdict

    class ForeignMute(Foreign):
        def keep_document(self, score):
            return verdict

    def mute(score):
        return verdict

    batch = DocumentBatch(pa.table({"text": ["a"], "score": [1]}))
    for stage in (ScoreFilter(Mute()), ScoreFilter(ForeignMute()), Filter(mute, "score")):
        with pytest.raises(TypeError, match=words):
            stage.process(batch)


def test_a_filter_without_a_method_that_is_needed_is_refused_at_once():
    class OnlyScores(DocumentFilter):
        def score_document(self, text):
            return 1

    class OnlyKeeps(DocumentFilter):
        def keep_document(self, score):
            return True

    Score(OnlyScores(), "a"), Filter(OnlyKeeps(), "a")
    for stage, one in ((ScoreFilter, OnlyScores()), (ScoreFilter, OnlyKeeps())):
        with pytest.raises(TypeError, match="defines neither"):
            stage(one)
    with pytest.raises(TypeError, match="defines neither"):
        Score(OnlyKeeps(), "a")


def test_score_without_a_name_stores_scores_under_the_names_of_the_filters():
    task = Score([WordCountFilter(), len], None).process(batch("a b", "c"))
    assert task.data["word_count_score"].to_pylist() == [2, 1]
    assert task.data["len_score"].to_pylist() == [3, 1]
    assert Score(WordCountFilter()).outputs() == (["data"], ["word_count_score"])


def test_filters_in_a_row_copy_no_rows_of_the_table():
    rows = {ID: ["f#0", "f#1", "f#2"], "text": ["one two three", "one", "one two"]}
    batch = DocumentBatch(data=pa.table(rows))
    once = ScoreFilter(WordCountFilter(min_words=2)).process(batch)
    twice = ScoreFilter(WordCountFilter(min_words=3)).process(once)
    assert twice.selection()[0] is batch.data  # each copy would be of all texts
    assert [scored.ids.to_pylist() for scored in twice.take_account().scored] == [
        ["f#0", "f#1", "f#2"],
        ["f#0", "f#2"],
    ]
    assert twice.data["text"].to_pylist() == ["one two three"]
