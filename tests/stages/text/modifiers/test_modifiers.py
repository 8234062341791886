import subprocess
import sys
import time
import unicodedata

import ftfy
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill.stages.text.modifiers import (
    BoilerPlateStringModifier,
    FastTextLabelModifier,
    LineRemover,
    MarkdownRemover,
    Modify,
    NewlineNormalizer,
    QuotationNormalizer,
    QuotationRemover,
    Slicer,
    UnicodeNormalizer,
    UnicodeReformatter,
    UrlRemover,
    WhitespaceNormalizer,
)
from gristmill.stages.text.modifiers.removers import POLICY
from gristmill.tasks import DocumentBatch

SIGNS = '\n\r\t  ab"“’*_[](#h.w:/&;<\x00\x7f\x1b\x85\u2028\u3000éÃ¶ﬁ文'
TEXTS = st.text(st.sampled_from(SIGNS), max_size=30) | st.text(max_size=20)
PIECES = [
    "Ã¶",
    "&amp;",
    "&lt;",
    "<b>",
    "\n",
    "\r\n",
    "plain",
    " ",
    "â€œ",
    "\x1b[31m",
    "ﬁ",
    "Ａ",
    "“",
    "\ud83d",
    "e\u0301",
]
MOJIBAKE = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)

EVERY = {
    "boilerplate": BoilerPlateStringModifier(),
    "lines": LineRemover(["a", "", "b b"]),
    "markdown": MarkdownRemover(),
    "markdown headings": MarkdownRemover(headings=True),
    "newlines": NewlineNormalizer(),
    "quotations": QuotationRemover(),
    "straight quotations": QuotationNormalizer(),
    "reformat": UnicodeReformatter(fix_line_breaks=True, fix_latin_ligatures=True, uncurl_quotes=True),
    "nfkc": UnicodeNormalizer("NFKC"),
    "urls": UrlRemover(),
    "whitespace": WhitespaceNormalizer(),
    "one line": WhitespaceNormalizer(keep_newlines=False),
}


LEAST = {
    "boilerplate": [f"{phrase.title()}.\n\nText." for phrase in POLICY] + ["LOREM IPSUM"],
    "lines": ["a", "x\nb b", "x\n"],
    "markdown": ["*a*", "_a_", "[a](b)"],
    "markdown headings": ["# a"],
    "newlines": ["\n\n\n", "\r\n\r\n\r\n"],
    "quotations": ['"a"', '"é"', '"ab\nc"'],
    "straight quotations": list("\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f"),
    "reformat": ["Ã¶", "\x00", "\x08", "\x0b", "\x1f", "\x7f", "&amp;", "\x1b[0m", "a\rb", "ﬁ", "’"],
    "nfkc": ["e\u0301", "①"],
    "urls": ["http://x", "HTTPS://x", "www.x", "wWw.x"],
    "whitespace": [" a", "a ", "\na", "a\n", "a  b", "a \nb", "a\n b", "a\tb", "a\rb", "a\u2028b", "a\x85b", "a\x1cb"],
    "one line": ["a\nb", " a", "a ", "a  b", "a\u3000b"],
}


@pytest.mark.parametrize("name", EVERY)
def test_the_smallest_change_of_a_text_is_counted(name):
    for text in LEAST[name]:
        task = Modify(EVERY[name]).process(DocumentBatch(data=pa.table({"text": ["", text, "plain"]})))
        assert task.data["text"].to_pylist() == ["", EVERY[name].modify_document(text), "plain"]
        assert task.account.counters["documents changed"] == 1, text


@pytest.mark.parametrize("name", EVERY)
@settings(deadline=None, max_examples=60)
@given(texts=st.lists(TEXTS, max_size=4))
@example(texts=["\nhttp://x", " a", "a ", "\x85a", "# a"])
def test_a_text_that_would_change_is_never_passed_over(name, texts):
    modifier = EVERY[name]
    task = Modify(modifier).process(DocumentBatch(data=pa.table({"text": pa.array(texts, pa.large_string())})))
    assert task.data["text"].to_pylist() == [modifier.modify_document(text) for text in texts]


@pytest.mark.parametrize("name", ["lines", "newlines", "straight quotations", "nfkc", "urls", "whitespace", "one line"])
@settings(deadline=None, max_examples=60)
@given(text=TEXTS)
def test_what_is_in_order_stays_in_order(name, text):
    once = EVERY[name].modify_document(text)
    assert EVERY[name].modify_document(once) == once


@settings(deadline=None, max_examples=60)
@given(MOJIBAKE)
@example("<b>\n&amp;")
@example("&amp;\n<b>\n&amp;\n")
def test_reformatting_is_what_ftfy_does(text):
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    config = ftfy.TextFixerConfig(
        fix_latin_ligatures=False,
        fix_character_width=False,
        uncurl_quotes=False,
        fix_line_breaks=False,
        normalization=None,
    )
    task = Modify(UnicodeReformatter()).process(DocumentBatch(data=pa.table({"text": [text]})))
    assert task.data["text"].to_pylist() == [ftfy.fix_text(text, config)]


def test_wrongly_decoded_text_is_repaired_and_options_are_ftfys():
    assert UnicodeReformatter().modify_document("schÃ¶n â€” &amp; gut") == "schön — & gut"
    assert UnicodeReformatter(unescape_html=False).modify_document("&amp;") == "&amp;"
    assert UnicodeReformatter().modify_document("“a”") == "“a”"
    assert UnicodeReformatter(uncurl_quotes=True).modify_document("“a”") == '"a"'
    assert UnicodeReformatter(normalization="NFC").modify_document("e\u0301") == "é"
    options = set(UnicodeReformatter().options)
    assert options == set(ftfy.TextFixerConfig._fields) - {"explain"}
    with pytest.raises(ValueError, match="no normal form 'NFX'"):
        UnicodeReformatter(normalization="NFX")


def test_without_ftfy_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ftfy", None)
    with pytest.raises(ImportError, match=r"gristmill\[text\]"):
        UnicodeReformatter().modify_document("a")


@settings(deadline=None, max_examples=60)
@given(st.text(), st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_normal_forms_are_those_of_unicode(text, form):
    assert UnicodeNormalizer(form).modify_document(text) == unicodedata.normalize(form, text)


def test_newlines():
    normal = NewlineNormalizer().modify_document
    assert normal("a\n\nb\n\n\n\nc") == "a\n\nb\n\nc"
    assert normal("a\r\n\r\n\r\n\r\nb\r\n\r\nc") == "a\r\n\r\nb\r\n\r\nc"


def test_white_space():
    normal = WhitespaceNormalizer().modify_document
    assert normal(" a\t\u00a0 b \r\n  c\n\n\nd\u2028e ") == "a b\nc\n\n\nd\ne"
    assert normal("a\rb\x85c") == "a\nb\nc"
    assert WhitespaceNormalizer(keep_newlines=False).modify_document(" a\n\n b\t") == "a b"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('"a b"', "a b"),
        ('"a', '"a'),
        ('""', '""'),
        ('"', '"'),
        ("", ""),
        ('"a\nb"', "a\nb"),
        ('"a"\nhe said "b"', '"a"\nhe said "b"'),
        ("“a”", "“a”"),
    ],
)
def test_quotes_around_a_whole_text_go(text, wanted):
    assert QuotationRemover().modify_document(text) == wanted


def test_curly_quotes_become_straight():
    assert QuotationNormalizer().modify_document("“It’s” „so‟ ‘he’ ‚said‛") == "\"It's\" \"so\" 'he' 'said'"
    assert QuotationNormalizer().modify_document("«a» 文 ′") == "«a» 文 ′"


def test_urls_go_up_to_the_next_space():
    remover = UrlRemover()
    text = "see https://a.example/b?c=(d), HTTP://X and www.example.com\nbut not ftp://x, a www or http:/x"
    assert remover.modify_document(text) == "see   and \nbut not ftp://x, a www or http:/x"
    assert remover.counters == {"removed url": 3}


def test_lines_go_only_as_a_whole_and_are_no_patterns():
    remover = LineRemover(["Share", "a.c", ""])
    assert remover.modify_document("Share\nShare this\n\nabc\na.c\nend") == "Share this\nabc\nend"
    assert remover.counters == {"removed line": 3}
    assert LineRemover([]).modify_document("a\n\nb") == "a\n\nb"
    with pytest.raises(TypeError, match=r"use \['Share'\]"):
        LineRemover("Share")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({}, "one [two] three [four] five"),
        ({"left": 4}, "[two] three [four] five"),
        ({"left": 3, "strip": False}, " [two] three [four] five"),
        ({"right": -5}, "one [two] three [four]"),
        ({"left": "[", "right": "]"}, "[two] three [four]"),
        ({"left": "[", "right": "]", "include_left": False, "include_right": False}, "two] three [four"),
        ({"left": "six"}, ""),
        ({"right": "six"}, ""),
        ({"left": None, "right": None}, "one [two] three [four] five"),
    ],
    ids=str,
)
def test_slices(arguments, wanted):
    assert Slicer(**arguments).modify_document("one [two] three [four] five") == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("**bold** and *italic* and ***both***", "bold and italic and both"),
        ("**a *b* c**", "a b c"),
        ("_a b_ and __c__", "a b and c"),
        ("see [the docs](https://x.example/a_b) now", "see https://x.example/a_b now"),
        ('![logo](a.png "Our logo")', "a.png"),
        ("2 * 3 * 4 and snake_case_name and __init__.py", "2 * 3 * 4 and snake_case_name and init.py"),
        ("* item\n* item", "* item\n* item"),
        ("a_b_ c, _d_e", "a_b_ c, _d_e"),
        ("*a\nb*", "*a\nb*"),
        ("# Title\n#tag", "# Title\n#tag"),
    ],
)
def test_markdown(text, wanted):
    assert MarkdownRemover().modify_document(text) == wanted


def test_markdown_by_choice():
    assert MarkdownRemover(links="text").modify_document("[the docs](https://x.example)") == "the docs"
    assert MarkdownRemover(headings=True).modify_document("# Title\n#tag\n### Sub") == "Title\n#tag\nSub"
    with pytest.raises(ValueError, match="links"):
        MarkdownRemover(links="both")


TOP, MIDDLE, BOTTOM = "This site USES COOKIES.", "What it is about.", "Read our privacy policy."


def test_boilerplate_goes_from_top_and_bottom_only():
    modifier = BoilerPlateStringModifier()
    assert modifier.modify_document("\n\n".join([TOP, MIDDLE, MIDDLE, BOTTOM, TOP])) == f"{MIDDLE}\n\n{MIDDLE}"
    assert modifier.counters == {"removed boilerplate paragraph": 3}
    for text in (
        "\n\n".join([TOP, MIDDLE, TOP, MIDDLE]),
        f"{MIDDLE}\n\n{TOP}\n\n{MIDDLE}",
        f"{TOP}\n\n{BOTTOM}",
        MIDDLE,
        "",
    ):
        assert modifier.modify_document(text) == text


def test_boilerplate_can_empty_a_text():
    assert BoilerPlateStringModifier().modify_document(f"{MIDDLE}\n\nLorem Ipsum dolor") == ""
    assert BoilerPlateStringModifier(remove_if_at_top_or_bottom=False).modify_document(f"{TOP}\n\n{MIDDLE}") == ""


def test_a_line_of_training_data():
    assert FastTextLabelModifier("__label__hq").modify_document("a\nb __label__cc") == "__label__hq a b  cc"


HOSTILE = [
    "*",
    "**",
    "*a",
    "**a ",
    "***a",
    "_",
    "__a ",
    "_a _",
    "[",
    "[a",
    "[a](",
    '[a](b "',
    "](",
    "![",
    "#",
    "# ",
    "\n# ",
]
HOSTILE += ["\n", "\r\n", " ", " \n", "\t", "w", "http://", '"', "“", "&", "é"]


@pytest.mark.parametrize("piece", HOSTILE, ids=repr)
def test_time_grows_with_the_text_not_with_its_square(piece):
    def seconds(text: str) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            for name, modifier in EVERY.items():
                if name != "reformat":
                    modifier.modify_document(text)
            best = min(best, time.process_time() - start)
        return best

    short = piece * (20_000 // len(piece))
    assert seconds(short * 4) < 9 * seconds(short) + 0.01  # four is linear, sixteen is the square


def test_modifiers_are_cheap_to_import():
    code = (
        "import sys, gristmill.stages.text.modifiers, gristmill.stages.text.tools;"
        "import gristmill.stages.text.filters.language;"
        "heavy = {'pyarrow', 'pandas', 'numba', 'ftfy', 'fasttext'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
