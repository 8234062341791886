"""The filters of source code: scores by plain references, bounds, reasons, and documents without content."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.kernels.texts import Texts
from gristmill.stages.registry import REGISTERED, arguments_of
from gristmill.stages.text.filters.code import (
    AlphaFilter,
    GeneralCommentToCodeFilter,
    HTMLBoilerplateFilter,
    NumberOfLinesOfCodeFilter,
    PerExtensionFilter,
    PythonCommentToCodeFilter,
    XMLHeaderFilter,
)
from gristmill.stages.text.filters.score_filter import ScoreFilter
from gristmill.tasks import DocumentBatch

TEXTS = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60), min_size=1, max_size=6)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "code_meta.csv"
    path.write_text(
        "language,extension,Include,Long_line_threshold,Alphanum_threshold,Alpha filter\n"
        "python,py,1,1000,0.25,\n"
        "python,pyi,0,1000,0.25,\n"
        "c-sharp,cs,1,,,0.5\n"
        "dockerfile,,1,20,,\n",
        encoding="utf-8",
    )
    return str(path)


def verdicts(one, texts):
    return [bool(kept) for kept in one.keep_batch(one.score_batch(Texts.of(texts)))]


def test_comment_ratios_of_python_count_comments_and_docstrings():
    source = '"""Doc."""\nx = 1  # one\n'
    one = PythonCommentToCodeFilter()
    assert one.score_document(source) == pytest.approx((len("Doc.") + len("# one")) / len(source))
    assert verdicts(one, [source, "x = 1\n", "# only\n"]) == [True, False, False]
    assert one.reasons(np.array([0.0, 1.0])) == ["too few comments", "too many comments"]


def test_comment_ratios_of_other_languages_leave_out_the_signs():
    one = GeneralCommentToCodeFilter("text/x-c++", min_comment_to_code_ratio=0.5)
    assert one.score_document("ab/*cd*/") == pytest.approx(2 / 8)
    assert one.score_document("/*abcdef*/") == pytest.approx(0.6)
    assert one.score_document("/*a*//*b*/") == pytest.approx(len("a b") / 10)
    assert verdicts(one, ["ab/*cd*/", "/*abcdef*/", "/* broken"]) == [False, True, True]


def test_bounds_of_comment_ratios_are_kept():
    one = GeneralCommentToCodeFilter("c", 0.25, 0.6)
    assert one.keep_batch(np.array([0.25, 0.6, 0.2499, 0.6001])).tolist() == [True, True, False, False]


def test_lines_of_code_are_newlines_and_one():
    one = NumberOfLinesOfCodeFilter(min_lines=2, max_lines=3)
    texts = ["", "a", "a\n", "a\nb\nc", "a\r\nb\n\nc", "a\u2028b"]
    assert one.score_batch(Texts.of(texts)).tolist() == [text.count("\n") + 1 for text in texts]
    assert verdicts(one, texts) == [False, False, True, True, False, False]
    assert one.reasons(np.array([1, 4])) == ["too few lines", "too many lines"]


@settings(deadline=None)
@given(TEXTS)
def test_letters_are_counted_in_all_scripts(texts):
    letters = AlphaFilter().score_batch(Texts.of(texts))
    for text, score in zip(texts, letters, strict=True):
        assert sum(map(str.isalpha, text)) / max(len(text), 1) <= score <= 1


def test_tensors_go_and_code_stays():
    assert verdicts(AlphaFilter(), ["0.1, 0.2, 0.3", "def f(x): return x", "Привет 123", ""]) == [
        False,
        True,
        True,
        False,
    ]


@settings(deadline=None)
@given(st.integers(0, 60), st.text("é漢a<", max_size=60))
def test_an_xml_header_counts_within_the_first_characters_only(length, before):
    text = before + '<?xml version="1.0"?>'
    expected = "<?xml version=" in text[:length]
    assert XMLHeaderFilter(length).score_document(text) == expected


def test_files_with_an_xml_header_go():
    late = " " * 100 + "<?xml version="
    assert verdicts(XMLHeaderFilter(), ['<?xml version="1.0"?>', late, "<?xml", "", "\n"]) == [False] + [True] * 4


def test_boilerplate_is_a_page_with_little_text():
    text = "word " * 30
    page = f"<html><script>{'x' * 50}</script><p>{text}</p></html>"
    one = HTMLBoilerplateFilter()
    assert one.score_document(page) == pytest.approx(len(text) / len(page))
    assert one.score_document("<p>short</p>") == 0
    mostly_markup = "<p>" + text + "<br class='x'>" * 100
    assert verdicts(one, [page, "<p>short</p>", mostly_markup, "", "   "]) == [True, False, False, False, False]
    assert one.reasons(np.array([0.0, 0.1])) == ["too little text", "mostly markup"]


def test_a_table_has_thresholds_by_language_and_extension(table):
    python = PerExtensionFilter("Python", "py", table)
    texts = ["x = 1\n" * 20, "x" * 1001, "a" * 200 + "\n" + "b" * 150, "-+" * 40, ""]
    scores = python.score_batch(Texts.of(texts))
    assert scores.tolist() == [1, -1, -2, -3, -3]
    assert python.reasons(scores[1:4]) == [
        "line too long",
        "lines too long on average",
        "too few alphanumeric characters",
    ]
    assert verdicts(PerExtensionFilter("C#", "cs", table), ["abc1", "abc1234", ""]) == [True, False, False]
    assert verdicts(PerExtensionFilter("dockerfile", None, table), ["FROM a", "x" * 21]) == [True, False]


def test_extensions_that_a_table_does_not_include_go(table):
    for extension in ("pyi", "unheard-of"):
        one = PerExtensionFilter("python", extension, table)
        assert one.score_document("x = 1") == 0
        assert one.reasons(np.array([0])) == ["extension not included"]


def test_a_language_that_a_table_does_not_have_is_an_error(table):
    with pytest.raises(ValueError, match="no row for the language 'cobol'"):
        PerExtensionFilter("cobol", "cbl", table)


FILTERS = [
    PythonCommentToCodeFilter(),
    GeneralCommentToCodeFilter("c"),
    NumberOfLinesOfCodeFilter(),
    AlphaFilter(),
    XMLHeaderFilter(),
    HTMLBoilerplateFilter(),
]


@pytest.mark.parametrize("one", FILTERS, ids=lambda one: one.name)
def test_every_document_has_a_verdict_and_every_filter_its_rule(one):
    texts = ["", " ", "\n\t\r\n", "\0", "\ufeff", "é" * 1000, "\u202e'\"/*<", "a" * 3_000_000]
    scores = one.score_batch(Texts.of(texts))
    assert len(one.keep_batch(scores)) == len(texts) and np.isfinite(scores).all()
    assert one.score_batch(Texts.of([])).shape == (0,)
    assert scores.tolist() == [one.score_document(text) for text in texts]
    assert one.rule()
    assert REGISTERED[type(one).__name__] is type(one) and arguments_of(one) is not None


def test_files_that_go_are_in_the_account_with_reason_and_score():
    import pyarrow as pa

    code = "int x; // one of these\n" * 10
    texts = [code, '<?xml version="1.0"?>\n' + code, "x\n", "int x;\n" * 20, None]
    filters = [XMLHeaderFilter(), NumberOfLinesOfCodeFilter(), AlphaFilter(), GeneralCommentToCodeFilter("c")]
    stage = ScoreFilter(filters, keep_scores=True)
    stage.preload()
    stage.setup()
    kept = stage.process(DocumentBatch(data=pa.table({"text": texts})))
    assert kept.data.column("text").to_pylist() == [code]
    assert kept.data.column("num_lines_score").to_pylist() == [11]
    reasons = [reason for dropped in kept.account.dropped for reason in dropped.reasons]
    assert reasons == ["XML header", "too few lines", "too few comments", "too few lines"]
    scores = [score for dropped in kept.account.dropped for score in dropped.scores or []]
    assert scores == [1, 2, 0, 1]
